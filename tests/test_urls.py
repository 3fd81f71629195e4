"""Files and folders by URL: in memory, over HTTP with ranges, and in S3."""

import errno
import json
import os
import re
import shlex
import signal
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from multiprocessing import get_context
from pathlib import Path
from random import Random
from threading import Event, Semaphore, Thread
from zipfile import ZipFile

import fsspec
import numpy as np
import pytest
import scheme_fixtures
from test_convert_folders import contents, folder_of

import shapejit as sj
from shapejit.__main__ import main

RNG = np.random.default_rng(19)
TENSORS = {
    "a": RNG.standard_normal((256, 512)).astype(np.float32),
    "b": RNG.integers(0, 99, (3, 5), np.int8),
    "c": RNG.standard_normal((1024, 1024)).astype(np.float16),
}
KIB = 1024


class Handler(BaseHTTPRequestHandler):
    """Serves the files of a folder; counts what it sends, and misbehaves as it is told."""

    protocol_version = "HTTP/1.1"

    def handle(self):
        with suppress(ConnectionResetError):  # by who does not want the rest
            super().handle()

    def do_HEAD(self):
        self.answer(False)

    def do_GET(self):
        self.answer(True)

    def answer(self, body):
        server = self.server
        path = server.folder / self.path.partition("?")[0].lstrip("/")
        if server.status or not path.is_file():
            self.send_response(server.status or server.missing)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        promised = None
        data, status = path.read_bytes(), 200
        part = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers.get("Range", ""))
        if part and "no ranges" not in server.faults:
            first, last = (int(k) + ("shift" in server.faults) for k in part.groups())
            data, status = data[first : last + 1], 206
            if "short" in server.faults:
                data = data[: len(data) // 2]
            if server.drops and body:
                server.drops -= 1
                self.close_connection = True
                if "half" not in server.faults:
                    return
                data, promised = data[: len(data) // 2], len(data)
        self.send_response(status)
        if status == 206:
            self.send_header("Content-Range", f"bytes {first}-{last}/{path.stat().st_size}")
        self.send_header("Content-Length", str(promised or len(data)))
        for name, value in server.marks.items():
            self.send_header(name, value.format(server.version))
        self.end_headers()
        if body and status == 206 and first and "stall" in server.faults:
            server.stalled.release()
            server.released.wait(60)
            self.close_connection = True
            return
        if body:
            server.requests += 1
            server.sent += len(data)
            # Who asked for less does not wait for the rest.
            try:
                self.wfile.write(data)
            except OSError:
                self.close_connection = True

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def web():
    """A web server, which serves the folder that is put into `folder`."""
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = Thread(target=server.serve_forever)
        thread.start()
        server.url = f"http://127.0.0.1:{server.server_port}"
        yield server
        server.shutdown()
        thread.join()
        fsspec.get_filesystem_class("http").clear_instance_cache()


@pytest.fixture
def served(web, tmp_path):
    """The web server with a folder of its own, and as it should be."""
    web.folder, web.version, web.status, web.missing, web.faults = tmp_path, 1, 0, 404, set()
    web.requests = web.sent = web.drops = 0
    web.marks, web.stalled, web.released = {"ETag": '"{}"'}, Semaphore(0), Event()
    yield web
    web.released.set()


@pytest.fixture
def memory():
    """An empty file system in memory."""
    system = fsspec.filesystem("memory")
    yield system
    system.store.clear()
    system.pseudo_dirs[:] = [""]


@contextmanager
def sent(server):
    """The bytes that are served meanwhile, as a list."""
    before, count = server.sent, []
    yield count
    count.append(server.sent - before)


def put(system, folder, where):
    """Copy a local folder."""
    for name, data in contents(folder).items():
        system.pipe_file(f"{where}/{name}", data)


def got(system, where):
    """All files of a folder and their bytes."""
    home = f"{where.rstrip('/')}/"
    return {Path(name.removeprefix(home)): system.cat_file(name) for name in system.find(where)}


def same(found, wanted):
    assert set(found) == set(wanted)
    for name, x in wanted.items():
        assert found[name].numpy().tobytes() == x.tobytes()


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "gguf"])
def test_a_header_costs_kilobytes_and_a_tensor_its_own_bytes(suffix, served, tmp_path):
    sj.save_file(TENSORS, tmp_path / f"m.{suffix}")
    with sent(served) as head:
        found = sj.load_file(f"{served.url}/m.{suffix}")
        assert set(found) == set(TENSORS)
    assert head[0] <= 512 * KIB
    if suffix == "safetensors":
        assert head[0] <= 64 * KIB
        assert served.requests == 1
    for name, x in TENSORS.items():
        with sent(served) as count:
            assert found[name].numpy().tobytes() == x.tobytes()
        assert count == [x.nbytes]


def test_quantised_weights_are_read_once(served, tmp_path):
    """Not to detect them, and again to decode them."""
    scheme, folder = sj.schemes["fp8:block"], tmp_path / "in"
    parts = scheme.encode(RNG.standard_normal((1024, 2048)).astype(np.float32))
    folder.mkdir()
    file = folder / "model.safetensors"
    sj.save_file({f"{k}.q.{name}": t for k in range(2) for name, t in parts.items()}, file)
    with sent(served) as count:
        url = f"{served.url}/in/model.safetensors"
        sj.files.convert(url, tmp_path / "out.npz", [("to", "f32")], proof=False)
    assert count[0] < 1.1 * file.stat().st_size
    wanted = scheme.decode(parts, dtype="float32").numpy()
    same(sj.load_file(tmp_path / "out.npz"), {"0.q.weight": wanted, "1.q.weight": wanted})


@pytest.mark.parametrize("chain", ["zip://m.safetensors::{}/m.zip", "simplecache::{}/m.safetensors",
                                   "zip://m.safetensors::simplecache::{}/m.zip"])  # fmt: skip
def test_chains_of_file_systems_are_read(chain, served, tmp_path):
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    with ZipFile(tmp_path / "m.zip", "w") as archive:
        archive.write(tmp_path / "m.safetensors", "m.safetensors")
    url = chain.format(served.url)
    same(sj.load_file(url), TENSORS)
    sj.files.convert(url, tmp_path / "n.safetensors", [("permute", "a=1,0")])
    same(sj.load_file(tmp_path / "n.safetensors"), TENSORS | {"a": TENSORS["a"].T.copy()})


@pytest.mark.parametrize("suffix", ["safetensors", "npz", "npy", "gguf"])
def test_every_format_is_written_and_read_by_url(suffix, memory, tmp_path):
    tensors = {"arr_0": TENSORS["c"].T} if suffix == "npy" else TENSORS
    sj.save_file(tensors, f"memory://m.{suffix}")
    sj.save_file(tensors, tmp_path / f"m.{suffix}")
    same(sj.load_file(f"memory://m.{suffix}"), tensors)
    if suffix != "npz":  # whose checksums stand behind the data, where nobody can go back
        assert memory.cat_file(f"/m.{suffix}") == (tmp_path / f"m.{suffix}").read_bytes()
    rules = [("permute", ".*=1,0")]
    sj.files.convert(f"memory://m.{suffix}", "memory://n.safetensors", rules, verify=True)
    sj.files.convert(tmp_path / f"m.{suffix}", tmp_path / "n.safetensors", [("permute", ".*=1,0")])
    assert memory.cat_file("/n.safetensors") == (tmp_path / "n.safetensors").read_bytes()


def test_a_file_that_is_sent_is_verified(memory, tmp_path, monkeypatch):
    """It is damaged on its way: nothing is left of it."""
    kind = fsspec.implementations.memory.MemoryFile
    commit = kind.commit

    def damaged(self):
        if self.size:  # not when it is begun
            self.getbuffer()[-1] ^= 1
        commit(self)

    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    monkeypatch.setattr(kind, "commit", damaged)
    with pytest.raises(sj.FileFormatError, match=r"its bytes in n\.safetensors differ from those"):
        sj.files.convert(tmp_path / "m.safetensors", "memory://n.safetensors", verify=True)
    assert not memory.exists("/n.safetensors")


def test_an_onnx_model_and_its_data_by_url(memory, tmp_path):
    onnx = pytest.importorskip("onnx")
    helper = onnx.helper
    w = onnx.numpy_helper.from_array(TENSORS["a"].ravel()[:4096].reshape(64, 64), "w")
    x, y = (helper.make_tensor_value_info(n, 1, [64, 64]) for n in "xy")
    graph = helper.make_graph([helper.make_node("MatMul", ["x", "w"], ["y"])], "g", [x], [y], [w])
    model = helper.make_model(graph)
    onnx.save(model, tmp_path / "m.onnx", save_as_external_data=True, location="m.data")
    put(memory, tmp_path, "/in")
    same(sj.load_file("memory://in/m.onnx"), {"w": TENSORS["a"].ravel()[:4096]})
    sj.files.convert("memory://in/m.onnx", "memory://out/n.onnx", [("permute", "w=1,0")])
    sj.files.convert(tmp_path / "m.onnx", tmp_path / "out.onnx", [("permute", "w=1,0")])
    found, wanted = sj.load_file("memory://out/n.onnx"), sj.load_file(tmp_path / "out.onnx")
    same(found, {"w": wanted["w"].numpy()})
    assert set(memory.find("/out")) == {"/out/n.onnx", "/out/n.onnx.data"}


FAULTS = {
    "no ranges": "does not support range requests",
    "short": "bytes from byte .* on .* came",
    "shift": "of bytes .* its server sent others",
}


@pytest.mark.parametrize("fault", FAULTS)
def test_a_server_that_sends_something_else_is_an_error(fault, served, tmp_path):
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    found = sj.load_file(f"{served.url}/m.safetensors")
    served.faults = {fault}
    with pytest.raises(sj.FileFormatError, match=f"m.safetensors: tensor 'c': .*{FAULTS[fault]}"):
        found["c"]
    with pytest.raises(sj.FileFormatError, match=FAULTS[fault]):
        sj.files.convert(f"{served.url}/m.safetensors", tmp_path / "n.npz", [("permute", ".*=1,0")])
    assert not (tmp_path / "n.npz").exists()


def test_a_file_that_is_changed_while_it_is_read_is_an_error(served, memory, tmp_path):
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    found = sj.load_file(f"{served.url}/m.safetensors")
    served.version = 2
    with pytest.raises(sj.FileFormatError, match="tensor 'a': it was changed while it was read"):
        found["a"]
    sj.save_file(TENSORS, "memory://m.safetensors")
    found = sj.load_file("memory://m.safetensors")
    sj.save_file(TENSORS, "memory://m.safetensors")
    with pytest.raises(sj.FileFormatError, match="tensor 'a': it was changed while it was read"):
        found["a"]


MARKS = {
    "etag": {"ETag": '"{}"'},
    "weak etag": {"ETag": 'W/"{}"', "Last-Modified": "Mon, 02 Jan 2023 00:00:00 GMT"},
    "time": {"Last-Modified": "Mon, 0{} Jan 2023 00:00:00 GMT"},
    "time, weak etag": {"ETag": 'W/"same"', "Last-Modified": "Mon, 0{} Jan 2023 00:00:00 GMT"},
}


@pytest.mark.parametrize("marks", MARKS)
def test_a_server_that_sends_another_file_under_the_same_url_is_an_error(marks, served, tmp_path):
    served.marks = MARKS[marks]
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    found = sj.load_file(f"{served.url}/m.safetensors")
    assert found["a"].numpy().tobytes() == TENSORS["a"].tobytes()
    served.version = 2
    with pytest.raises(sj.FileFormatError, match="tensor 'c': it was changed while it was read"):
        found["c"]


def test_a_file_that_ends_before_a_range_has_changed(served, tmp_path):
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    found = sj.load_file(f"{served.url}/m.safetensors")
    served.status = 416
    with pytest.raises(sj.FileFormatError, match="tensor 'c': it was changed while it was read"):
        found["c"]


def test_a_server_that_sends_a_file_of_another_size_is_an_error(served, tmp_path):
    served.marks = {}
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    found = sj.load_file(f"{served.url}/m.safetensors")
    sj.save_file(TENSORS | {"d": TENSORS["a"]}, tmp_path / "m.safetensors")
    with pytest.raises(sj.FileFormatError, match="tensor 'c': it was changed while it was read"):
        found["c"]


@pytest.mark.parametrize("how", ["at once", "half"])
def test_a_dropped_connection_is_made_anew(how, served, tmp_path):
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    served.faults, served.drops = {how}, 2
    same(sj.load_file(f"{served.url}/m.safetensors"), TENSORS)
    assert served.drops == 0
    found, served.drops = sj.load_file(f"{served.url}/m.safetensors"), 100
    with pytest.raises(OSError, match=r"m\.safetensors"):
        found["c"]


@pytest.mark.parametrize(
    ("number", "executor"), [(signal.SIGINT, None), (signal.SIGTERM, "threads:2")]
)
def test_a_command_that_reads_ends_at_once_when_it_is_told_to(number, executor, served, tmp_path):
    (tmp_path / "in").mkdir()
    sj.save_file(TENSORS, tmp_path / "in" / "model.safetensors")
    served.faults = {"stall"}
    words = [] if executor is None else ["--executor", executor]
    words += ["--no-proof", "--cast", "a=f16", f"{served.url}/in/", str(tmp_path / "out")]
    command = [sys.executable, "-m", "shapejit", "convert", *words]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert served.stalled.acquire(timeout=600)
        process.send_signal(number)
        _, err = process.communicate(timeout=600)
    assert process.returncode == 128 + number
    assert err.endswith(("shapejit: error: interrupted\n", "shapejit: error: terminated\n"))
    assert {path.name for path in tmp_path.iterdir()} == {"in"}


@pytest.mark.parametrize("where", ["web", "memory"])
def test_a_forked_child_reads_what_its_parent_has_open(where, served, memory, tmp_path):
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    put(memory, tmp_path, "/in")
    url = f"{served.url if where == 'web' else 'memory://in'}/m.safetensors"
    found = sj.load_file(url)
    same(found, TENSORS)
    child = os.fork()
    if not child:
        try:
            signal.alarm(600)  # ends the child where it waits for ever
            same(found, TENSORS)
            same(sj.load_file(url), TENSORS)
        except BaseException:
            os._exit(1)
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    same(found, TENSORS)


def test_what_cannot_be_opened_is_reported_with_its_url(served, memory, tmp_path, monkeypatch):
    url = f"{served.url}/none.npz"
    with pytest.raises(FileNotFoundError, match=url):
        sj.load_file(url)
    served.status = 403
    with pytest.raises(PermissionError, match=url):
        sj.load_file(url)
    served.status = 503
    with pytest.raises(OSError, match=f"503.*{url}"):
        sj.load_file(url)
    with pytest.raises(OSError, match=r"Read-only.*m\.npz"):
        sj.save_file(TENSORS, f"{served.url}/m.npz")
    with pytest.raises(sj.FileFormatError, match=r"foo://a\.npz: .*not known: foo"):
        sj.load_file("foo://a.npz")
    memory.pipe_file("/in/other.bin", b"x")
    with pytest.raises(sj.FileFormatError, match=r"memory://in: .* it holds 'other\.bin'"):
        sj.load_file("memory://in")
    with pytest.raises(sj.FileFormatError, match="names a folder"):
        sj.save_file(TENSORS, "memory://in/")
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    with pytest.raises(ImportError, match=r"hf://b/a\.npz: .*huggingface_hub"):
        sj.load_file("hf://b/a.npz")


def test_a_store_that_refuses_what_is_missing_is_read(served, tmp_path):
    """As S3 does, where its content must not be listed."""
    (tmp_path / "in").mkdir()
    sj.save_file(TENSORS, tmp_path / "in" / "model.safetensors")
    served.missing = 403
    for url in (f"{served.url}/in/", f"{served.url}/in/model.safetensors"):
        sj.files.convert(url, tmp_path / "out.npz")
        same(sj.load_file(tmp_path / "out.npz"), TENSORS)


def test_no_message_shows_credentials(served, capsys, tmp_path):
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    host = served.url.removeprefix("http://")
    for name in ("none.npz", "m.safetensors"):
        url = f"http://me:secret@{host}/{name}?signature=secret"
        for words in (["inspect", url], ["inspect", "--json", url], ["verify", url, url],
                      ["verify", "--json", url, url], ["convert", url, f"{url}/x.npz"],
                      ["convert", "--json", url, str(tmp_path / "n.npz")]):  # fmt: skip
            main(words)
            text = "".join(capsys.readouterr())
            assert text
            assert "secret" not in text


ENDS = ["?x=1,sig=secret", "?sig='secret'&a=secret", '?a="secret"', "#t=secret", "?a=b c secret"]


@pytest.mark.parametrize("end", ENDS)
def test_no_message_shows_the_end_of_a_url_whatever_it_is(end, served, capsys):
    for words in (["inspect", "--json"], ["inspect"]):
        main([*words, f"{served.url}/none.npz{end}"])
        text = "".join(capsys.readouterr())
        assert "none.npz" in text
        assert "secret" not in text
    said = str(sj.FileFormatError(f"https://host/a{end}", None, "its dtype is unknown"))
    assert said == f"https://host/a{end[0]}***: its dtype is unknown"


LEADING_OUT = ["../m.npz", "/m.npz", "memory://m.npz", "x::a", "", "a/../.."]


@pytest.mark.parametrize("location", LEADING_OUT)
def test_an_index_does_not_lead_out_of_its_folder(location, memory):
    sj.save_file(TENSORS, "memory://m.safetensors")
    index = {"weight_map": dict.fromkeys(TENSORS, location)}
    memory.pipe_file("/in/model.safetensors.index.json", json.dumps(index).encode())
    with pytest.raises(sj.FileFormatError, match=r"tensor 'a': (its location|no file)"):
        sj.load_file("memory://in")


def test_an_encoded_name_stays_in_its_folder(served, tmp_path):
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    (tmp_path / "in").mkdir()
    index = {"weight_map": dict.fromkeys(TENSORS, "%2e%2e/m.safetensors")}
    (tmp_path / "in" / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(sj.FileFormatError, match="does not exist"):
        sj.load_file(f"{served.url}/in/")


def test_names_in_a_listing_do_not_lead_out_of_the_destination(memory, tmp_path):
    fixture = scheme_fixtures.by_scheme()["fp8:channel"][0]
    put(memory, folder_of(tmp_path / "in", fixture), "/in")
    memory.pipe_file("/in/x/../../../evil", b"")
    sj.files.convert("memory://in", tmp_path / "out")
    sj.files.convert(tmp_path / "in", tmp_path / "wanted")
    assert contents(tmp_path / "out") == contents(tmp_path / "wanted")
    memory.pipe_file("/in/" + str(tmp_path / "evil"), b"")
    with pytest.raises(sj.FileFormatError, match="must be relative"):
        sj.files.convert("memory://in", tmp_path / "again")
    assert {p.name for p in tmp_path.iterdir()} == {"in", "out", "wanted"}


def big_folder(path):
    """A folder of three shards of many small tensors, weights of two schemes, and a config."""
    path.mkdir()
    group = scheme_fixtures.by_scheme()
    quantised = [group[s][0] for s in ("fp8:channel", "fp8:tensor")]
    shards = [{f"h.{k}.norm": RNG.standard_normal(700).astype(np.float32) for k in range(200)}]
    shards += [{f"{n}.{name}": x for name, x in f.checkpoint().items()}
               for n, f in enumerate(quantised)]  # fmt: skip
    places = {}
    for k, shard in enumerate(shards, 1):
        name = f"model-0000{k}-of-00003.safetensors"
        sj.save_file(shard, path / name, metadata={"format": "pt"})
        places |= dict.fromkeys(shard, name)
    index = {"metadata": {}, "weight_map": places}
    (path / "model.safetensors.index.json").write_text(json.dumps(index))
    (path / "config.json").write_text(json.dumps({"model_type": "x", "torch_dtype": "float32"}))
    (path / "tokenizer").mkdir()
    (path / "tokenizer" / "vocab.txt").write_text("a b")
    return path


# Wider elements come first in a file: some tensors are written before those that precede them.
RULES = [("to", "bf16"), ("rename", r"s/h\.(.*)/layers.\1/"), ("cast", r"layers\.[16]\..*=f16")]
SETTINGS = {"max_shard_size": "200KB"}


def test_many_small_tensors_take_few_requests(served, tmp_path):
    """Who reads in order finds what follows read already."""
    big_folder(tmp_path / "in")
    sj.files.convert(f"{served.url}/in/", tmp_path / "out", RULES, **SETTINGS)
    sj.files.convert(tmp_path / "in", tmp_path / "wanted", RULES, **SETTINGS)
    found, wanted = contents(tmp_path / "out"), contents(tmp_path / "wanted")
    del wanted[Path("tokenizer/vocab.txt")]  # the server lists nothing
    assert found == wanted
    assert served.requests < 100
    assert served.sent < 4 * sum(p.stat().st_size for p in (tmp_path / "in").iterdir())


def test_the_commands_take_urls(memory, tmp_path, capsys):
    put(memory, big_folder(tmp_path / "in"), "/in")
    assert main(["inspect", "memory://in"]) == 0
    assert "h.#.norm x 200" in capsys.readouterr().out
    words = ["--quiet", "--to", "bf16", "--max-shard-size", "200KB"]
    assert main(["convert", *words, "memory://in", "memory://out"]) == 0
    assert main(["convert", *words, str(tmp_path / "in"), str(tmp_path / "out")]) == 0
    assert got(memory, "/out") == contents(tmp_path / "out")
    assert main(["verify", "memory://out", str(tmp_path / "out")]) == 0
    assert main(["convert", *words, "memory://in", "memory://out"]) == 2
    assert "holds a checkpoint" in capsys.readouterr().err
    assert got(memory, "/out") == contents(tmp_path / "out")


@pytest.mark.parametrize("executor", [None, "threads:2"])
def test_a_stopped_run_removes_nothing_of_others(executor, memory, tmp_path):
    big_folder(tmp_path / "in")

    def stop(nbytes):
        memory.pipe_file("/out/theirs.safetensors", b"theirs")
        raise InterruptedError("stop")

    with pytest.raises(InterruptedError, match="stop"):
        sj.files.convert(
            tmp_path / "in", "memory://out", **SETTINGS, executor=executor, progress=stop
        )
    assert got(memory, "/out") == {Path("theirs.safetensors"): b"theirs"}


def test_the_threads_of_a_stopped_run_read_on_for_others(memory, tmp_path):
    sj.save_file(TENSORS, "memory://in/model.safetensors")

    def stop(nbytes):
        raise InterruptedError(errno.EINTR, "stop")

    def read():
        return {name: x.tobytes() for name, x in sj.load_file("memory://in/").items()}

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(InterruptedError, match="stop"):
            sj.files.convert("memory://in/", tmp_path / "out", executor=pool, progress=stop)
        assert pool.submit(read).result() == read()
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("fault", [PermissionError("refused"), OSError(5, "reset")])
def test_a_destination_that_cannot_be_listed_is_not_written_to(fault, memory, monkeypatch):
    sj.save_file(TENSORS, "memory://in/model.safetensors")
    memory.pipe_file("/out/model.safetensors", b"old")
    ls = type(memory).ls

    def refused(self, path, *args, **settings):
        if "out" in path:
            raise fault
        return ls(self, path, *args, **settings)

    with monkeypatch.context() as patch:
        patch.setattr(type(memory), "ls", refused)
        with pytest.raises(OSError, match="memory://out"):
            sj.files.convert("memory://in", "memory://out", [("cast", "a=f16")])
    assert got(memory, "/out") == {Path("model.safetensors"): b"old"}


def test_what_a_stopped_run_sent_is_removed_or_kept(memory, tmp_path):
    put(memory, big_folder(tmp_path / "in"), "/source")
    memory.pipe_file("/stopped/README.md", b"mine")
    sj.files.convert(tmp_path / "in", tmp_path / "out", RULES, **SETTINGS)
    done = 0

    def stop(nbytes):
        nonlocal done
        done += nbytes
        if done > 250_000:
            raise InterruptedError("stop")

    for resume in (False, True):
        done = 0
        with pytest.raises(InterruptedError, match="stop"):
            sj.files.convert("memory://source", "memory://stopped", RULES, **SETTINGS,
                             resume=resume, progress=stop)  # fmt: skip
        left = {name.rpartition("/")[2] for name in memory.find("/stopped")}
        kept = {"model-00001-of-00003.safetensors", *(n for n in left if n.startswith(".shapejit"))}
        assert len(kept) == 1 + resume
        assert left == ({"README.md", *kept} if resume else {"README.md"})
    begun = memory.modified("/stopped/model-00001-of-00003.safetensors")
    sj.files.convert("memory://source", "memory://stopped", RULES, **SETTINGS, resume=True)
    assert memory.modified("/stopped/model-00001-of-00003.safetensors") == begun
    wanted = contents(tmp_path / "out") | {Path("README.md"): b"mine"}
    assert got(memory, "/stopped") == wanted


def test_reads_in_any_order_by_several_threads_get_their_bytes(served, tmp_path):
    tensors = {f"t{k}": RNG.integers(0, 99, 1 + 5**k, np.uint8) for k in range(10)}
    sj.save_file(tensors, tmp_path / "m.npz")
    sj.save_file(tensors, tmp_path / "m.safetensors")

    def read(seed):
        rng, suffixes = Random(seed), ("npz", "safetensors")
        found = [sj.load_file(f"{served.url}/m.{suffix}") for suffix in suffixes]
        for _ in range(30):
            name, file = rng.choice([*tensors]), rng.choice(found)
            assert file[name].numpy().tobytes() == tensors[name].tobytes()
        sj.files.convert(
            f"{served.url}/m.safetensors", tmp_path / f"{seed}.npz", [("exclude", f"t{seed}")]
        )
        same(sj.load_file(tmp_path / f"{seed}.npz"), tensors.keys() - {f"t{seed}"})

    def same(found, names):
        assert {name: t.numpy().tobytes() for name, t in found.items()} == {
            name: tensors[name].tobytes() for name in names
        }

    with ThreadPoolExecutor(4) as pool:
        assert [*pool.map(read, range(4))] == [None] * 4


def test_who_reads_in_order_asks_seldom_and_who_does_not_gets_little_more(served, tmp_path):
    tensors = {f"t{k:04}": np.full(8 * KIB, k % 99, np.uint8) for k in range(1000)}
    sj.save_file(tensors, tmp_path / "m.safetensors")
    url = f"{served.url}/m.safetensors"
    sj.files.convert(url, tmp_path / "all.npz", proof=False)
    assert served.requests <= 24
    assert served.sent <= (9 << 20) + 512 * KIB
    with sent(served) as count:
        sj.files.convert(url, tmp_path / "few.npz", [("exclude", "t(?!0.00).*")], proof=False)
    assert count[0] <= 16 * 64 * KIB


def test_a_file_that_cannot_be_finished_leaves_what_was_there(tmp_path):
    """On this machine by fsspec."""
    sj.save_file(TENSORS, tmp_path / "m.safetensors")
    old = (tmp_path / "m.safetensors").read_bytes()

    def stop(nbytes):
        raise InterruptedError("stop")

    with pytest.raises(InterruptedError, match="stop"):
        sj.files.convert(tmp_path / "m.safetensors", f"file://{tmp_path}/m.safetensors",
                         [("permute", "c=1,0")], progress=stop)  # fmt: skip
    assert (tmp_path / "m.safetensors").read_bytes() == old
    sj.files.convert(
        tmp_path / "m.safetensors", f"file://{tmp_path}/n.safetensors", [("permute", "c=1,0")]
    )
    same(sj.load_file(f"file://{tmp_path}/n.safetensors"), TENSORS | {"c": TENSORS["c"].T.copy()})


# S3: a server of its own


@pytest.fixture(scope="module")
def s3():
    """A bucket of an S3-compatible server, as a file system."""
    moto = pytest.importorskip("moto.server")
    with pytest.MonkeyPatch.context() as patch:
        server = moto.ThreadedMotoServer("127.0.0.1", 0, verbose=False)
        server.start()
        host, port = server.get_host_and_port()
        for name, value in {
            "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret",
            "AWS_DEFAULT_REGION": "us-east-1", "AWS_ENDPOINT_URL": f"http://{host}:{port}",
            "NO_PROXY": "127.0.0.1", "no_proxy": "127.0.0.1",
        }.items():  # fmt: skip
            patch.setenv(name, value)
        system = fsspec.filesystem("s3")
        system.mkdir("bucket")
        yield system
        server.stop()
        type(system).clear_instance_cache()


def uploads(s3):
    """Uploads of several parts that were neither finished nor given up."""
    return s3.call_s3("list_multipart_uploads", Bucket="bucket").get("Uploads", [])


def test_a_folder_from_s3_to_s3_is_as_from_disk_to_disk(s3, tmp_path):
    put(s3, big_folder(tmp_path / "in"), "bucket/in")
    sj.files.convert("s3://bucket/in", "s3://bucket/out", RULES, **SETTINGS)
    sj.files.convert(tmp_path / "in", tmp_path / "out", RULES, **SETTINGS)
    assert got(s3, "bucket/out") == contents(tmp_path / "out")
    found, wanted = (sj.load_file(url) for url in ("s3://bucket/out", tmp_path / "out"))
    assert found["layers.7.norm"].tobytes() == wanted["layers.7.norm"].tobytes()


def test_a_file_of_several_blocks_appears_as_a_whole(s3, tmp_path):
    """Nothing is there before its end, and nothing of what was stopped."""
    big = {"x": np.arange(5 << 20, dtype=np.int32).reshape(5, 1 << 20), "y": np.ones(3, np.float64)}
    sj.save_file(big, tmp_path / "big.safetensors")
    sj.files.convert(
        tmp_path / "big.safetensors", "s3://bucket/big.safetensors", [("permute", "x=1,0")]
    )
    sj.files.convert(
        tmp_path / "big.safetensors", tmp_path / "t.safetensors", [("permute", "x=1,0")]
    )
    assert s3.cat_file("bucket/big.safetensors") == (tmp_path / "t.safetensors").read_bytes()
    seen = []

    def stop(nbytes):
        seen.append(s3.exists("bucket/other.safetensors"))
        if len(seen) == 3:
            raise InterruptedError("stop")

    with pytest.raises(InterruptedError, match="stop"):
        sj.files.convert(
            tmp_path / "big.safetensors", "s3://bucket/other.safetensors", progress=stop
        )
    s3.invalidate_cache()
    assert seen == [False] * 3
    assert not s3.exists("bucket/other.safetensors")
    assert uploads(s3) == []


def test_what_s3_refuses_is_reported(s3, monkeypatch):
    with pytest.raises(FileNotFoundError, match=r"s3://bucket/none\.npz"):
        sj.load_file("s3://bucket/none.npz")
    with pytest.raises(OSError, match=r"s3://no-bucket/a\.npz"):
        sj.save_file(TENSORS, "s3://no-bucket/a.npz")
    with pytest.raises(OSError, match=r"s3://no-bucket"):
        sj.load_file("s3://no-bucket/")


def test_parts_and_workers_write_to_a_url(s3, memory, tmp_path):
    """Each file is one object. The plan is a small object beside them until the commit."""
    big_folder(tmp_path / "in")
    sj.files.convert(tmp_path / "in", tmp_path / "out", RULES, **SETTINGS)
    wanted = contents(tmp_path / "out")
    for k in (2, 1):
        sj.files.convert(tmp_path / "in", "s3://bucket/parts", RULES, **SETTINGS, part=(k, 2))
        assert "config.json" not in map(str, got(s3, "bucket/parts"))
    sj.files.convert(tmp_path / "in", "s3://bucket/parts", RULES, **SETTINGS, commit=2)
    assert got(s3, "bucket/parts") == wanted
    sj.files.convert(tmp_path / "in", "memory://workers", RULES, **SETTINGS, executor="threads:2")
    assert got(memory, "/workers") == wanted
    put(s3, tmp_path / "in", "bucket/source")
    where = "s3://bucket/source", "s3://bucket/workers"
    with ProcessPoolExecutor(1, get_context("spawn")) as pool:
        sj.files.convert(*where, RULES, **SETTINGS, executor=pool)
    s3.invalidate_cache()  # other processes have written
    assert got(s3, "bucket/workers") == wanted


# A process for each line of its input, killed at one of its requests to the server; how it ended,
# and how many requests it made. What all of them import is imported once.
SENDING = """
import os, signal, sys
from multiprocessing import RawValue
import s3fs, shapejit as sj
call, requests = s3fs.S3FileSystem._call_s3, RawValue("i")
def convert(last):
    async def counted(*given, **options):
        requests.value += 1
        if requests.value == last: os.kill(os.getpid(), signal.SIGKILL)
        return await call(*given, **options)
    s3fs.S3FileSystem._call_s3 = counted
    shares = [{"part": (2, 3)}, {"part": (1, 3)}, {"part": (3, 3)}, {"commit": 3}]
    for share in shares if sys.argv[2] == "parts" else [{}]:
        sj.files.convert(sys.argv[1], "s3://bucket/killed", [("to", "bf16")],
                         max_shard_size="200KB", resume=True, proof=False, **share)
for line in sys.stdin:
    requests.value, child = 0, os.fork()
    if not child:
        code = 1
        try: convert(int(line)); code = 0
        finally: os._exit(code)
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), requests.value, flush=True)
"""


@pytest.mark.parametrize("rounds", [2, pytest.param(100, marks=pytest.mark.slow)])
@pytest.mark.parametrize("how", ["whole", "parts"])
def test_killed_at_random_moments_while_it_sends(how, rounds, s3, tmp_path):
    """Nobody finds a checkpoint before it is whole; the next run finishes it, or has nothing to."""
    big_folder(tmp_path / "in")
    sj.files.convert(tmp_path / "in", tmp_path / "out", [("to", "bf16")], max_shard_size="200KB")
    wanted, killed = contents(tmp_path / "out"), 0
    command = [sys.executable, "-c", SENDING, tmp_path / "in", how]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, **pipes) as process:

        def send(last=0):
            print(last, file=process.stdin, flush=True)
            code, count = map(int, process.stdout.readline().split())
            s3.invalidate_cache()
            assert code in ((0, -signal.SIGKILL) if last else (0,))
            return code, count

        _, count = send()
        s3.rm("bucket/killed", recursive=True)
        for moment in np.random.default_rng(rounds).integers(1, count, rounds):
            killed += send(moment)[0] != 0
            with suppress(sj.FileFormatError, FileNotFoundError):
                sj.load_file("s3://bucket/killed")
                s3.invalidate_cache()  # the server may have answered the last request only now
                assert wanted.items() <= got(s3, "bucket/killed").items()
            found = got(s3, "bucket/killed") if s3.exists("bucket/killed") else {}
            if Path("model.safetensors.index.json") in found:
                assert wanted.items() <= found.items()
            if found != wanted:
                send()
                found = got(s3, "bucket/killed")
                assert found == wanted
            s3.rm("bucket/killed", recursive=True)
    assert killed


def test_a_part_is_written_again_where_its_file_is_another(memory, tmp_path):
    put(memory, big_folder(tmp_path / "in"), "/in")

    def convert(rules=RULES, **share):
        sj.files.convert("memory://in", "memory://out", rules, **SETTINGS, **share, proof=False)

    with pytest.raises(sj.FileFormatError, match="no part of this conversion was written"):
        convert(commit=2)
    convert(part=(2, 2))
    with pytest.raises(sj.FileFormatError, match="is missing, or is not as planned: run --part 1"):
        convert(commit=2)
    with pytest.raises(sj.FileFormatError, match="had another list of rules: to start again"):
        convert(RULES[:-1], part=(1, 2))
    convert(part=(1, 2))
    name = "/out/model-00002-of-00003.safetensors"
    good = memory.cat_file(name)
    memory.pipe_file(name, good[:-1])
    with pytest.raises(sj.FileFormatError, match=r"2-of-00003\.safetensors is missing, or is"):
        convert(commit=2)
    for k in (1, 2):
        convert(part=(k, 2), resume=True)
    convert(commit=2)
    assert memory.cat_file(name) == good
    assert not [found for found in memory.find("/out") if ".shapejit" in found]


def test_another_conversion_is_begun_anew(memory, tmp_path):
    """What one that was interrupted has sent is never taken for that of another one."""
    put(memory, big_folder(tmp_path / "in"), "/in")
    turned = [*RULES, ("slice", r"layers\..*norm=::-1")]
    sj.files.convert(tmp_path / "in", tmp_path / "out", turned, **SETTINGS)

    def stop(_):
        raise InterruptedError("stop")

    sj.files.convert("memory://in", "memory://out", RULES, **SETTINGS, part=(1, 1))
    with pytest.raises(sj.FileFormatError, match="had another list of rules: it cannot be resumed"):
        sj.files.convert("memory://in", "memory://out", turned, **SETTINGS, resume=True)
    with pytest.raises(InterruptedError, match="stop"):
        sj.files.convert("memory://in", "memory://out", turned, **SETTINGS, progress=stop)
    assert got(memory, "/out") == {}
    sj.files.convert("memory://in", "memory://out", RULES, **SETTINGS, part=(1, 1))
    sj.files.convert("memory://in", "memory://out", turned, **SETTINGS)
    assert got(memory, "/out") == contents(tmp_path / "out")


def test_the_commands_of_the_readme_take_urls_of_s3(s3, tmp_path, capsys):
    text = (Path(sj.files.__file__).parent / "README.md").read_text()
    lines = re.findall(r"^\$ shapejit (.*)", text, re.MULTILINE)
    s3.mkdir("models")
    parts = sj.schemes["fp8:channel"].encode(np.eye(8, dtype=np.float32))
    sj.save_file({f"fc.{name}": t for name, t in parts.items()}, tmp_path / "model.safetensors")
    put(s3, tmp_path, "models/llama-fp8")
    for line in lines:
        assert main(shlex.split(line)) == 0, capsys.readouterr().err
    assert sj.load_file("s3://models/llama-bf16/")["fc.weight"].dtype.name == "bfloat16"
