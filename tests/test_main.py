"""The command line: exit codes, what goes to stdout and stderr, and what is left on disk."""

import json
import os
import re
import resource
import signal
import subprocess
import sys
import threading
from functools import partial

import numpy as np
import pytest

import shapejit as sj
from shapejit.__main__ import main
from shapejit.files import file_formats, safetensors
from shapejit.files.writing import New


@pytest.fixture
def folder(tmp_path):
    """A folder with `in.safetensors`, whose tensors are x (2, 3, 4), y (6,) and packed p (8, 6)."""
    raw = np.arange(24, dtype=np.float32)
    tensors = [
        New.of("x.weight", sj.Tensor.frombuffer(raw, "float32", (2, 3, 4))),
        New.of("y", sj.Tensor.frombuffer(raw[:6].astype(np.int8), "int8", (6,))),
        New.of("p", sj.Tensor.frombuffer(raw.astype(np.uint8), "float4_e2m1fn", (8, 6))),
    ]
    file_formats.write(
        tmp_path / "in.safetensors", tensors, {"format": "pt", "note": "line\nbreak"}
    )
    return tmp_path


def run(*arguments, code=0, capsys):
    """Run a command in this process; return stdout, stderr."""
    assert main([str(a) for a in arguments]) == code
    return capsys.readouterr()


def refused(*arguments, words, capsys):
    """A command that ends with 2, nothing on stdout, and its error alone on stderr."""
    out, err = run(*arguments, code=2, capsys=capsys)
    assert out == ""
    assert err.startswith("shapejit: error: ")
    assert "Traceback" not in err
    assert words in err
    return err


def shell(*arguments, **options):
    command = [sys.executable, "-m", "shapejit", *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=6000, **options)


# convert


def test_convert(folder, capsys):
    out, err = run(
        "convert", folder / "in.safetensors", folder / "out.safetensors",
        "--reshape", r".*\.weight=6,4", "--permute", "x.*=1,0", "--permute", "p=1,0",
        capsys=capsys,
    )  # fmt: skip
    assert "3 tensors written: 2 converted, 1 copied; 2 changed by rules;" in out
    assert "GB/s" in out
    assert err == ""  # progress is for terminals
    assert out.count("\n") == 1
    found = safetensors.read(folder / "out.safetensors")
    source = safetensors.read(folder / "in.safetensors")
    wanted = np.arange(24, dtype=np.float32).reshape(6, 4).T
    np.testing.assert_array_equal(found.tensors["x.weight"].numpy(), wanted)
    codes = source.tensors["p"].unpack().T
    moved = found.tensors["p"].unpack()
    np.testing.assert_array_equal(moved.view(np.uint8), codes.astype(moved.dtype).view(np.uint8))
    assert found.metadata == source.metadata
    assert len(list(folder.iterdir())) == 2


def test_convert_json(folder, capsys):
    out, _ = run(
        "convert", folder / "in.safetensors", folder / "out", "--reshape", "y=2,3", "--json",
        capsys=capsys,
    )  # fmt: skip
    found = json.loads(out)
    assert found["destination"] == str(folder / "out")
    assert (found["tensors"], found["changed"], found["moved"]) == (3, 1, 0)
    assert found["bytes_read"] == found["bytes_written"] == 126
    assert found["gb_per_s"] > 0
    assert found["seconds"] > 0


def test_rules_of_both_kinds_apply_in_the_order_given(folder, capsys):
    source = folder / "in.safetensors"
    for name, words in {
        "a": ("--permute", "x.*=2,1,0", "--reshape", "x.*=12,2"),
        "b": ("--reshape", "x.*=12,2", "--permute", "x.*=1,0"),
    }.items():
        run("convert", source, folder / name, *words, capsys=capsys)
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    found = {n: safetensors.read(folder / n).tensors["x.weight"].numpy() for n in "ab"}
    np.testing.assert_array_equal(found["a"], x.transpose(2, 1, 0).reshape(12, 2))
    np.testing.assert_array_equal(found["b"], x.reshape(12, 2).T)


def test_the_destination_may_be_the_source(folder, capsys):
    path = folder / "in.safetensors"
    before = safetensors.read(path)
    run("convert", path, path, "--permute", "x.*=2,1,0", "--permute", "p=1,0", capsys=capsys)
    after = safetensors.read(path)
    # The map of the old file lives on.
    assert before.tensors["x.weight"].shape == (2, 3, 4)
    np.testing.assert_array_equal(
        after.tensors["x.weight"].numpy(), before.tensors["x.weight"].numpy().transpose(2, 1, 0)
    )
    assert list(folder.iterdir()) == [path]


@pytest.mark.parametrize(
    ("words", "shape"),
    [
        (("--spec", "onnx", "--reshape", "x.*=0,-1"), (2, 12)),
        (("--reshape", "x.*=0,-1", "--spec", "openvino", "--special-zero"), (2, 12)),
        (("--spec", "onednn", "--special-zero", "--reshape", "x.*=0,0,-1,1"), (2, 3, 4, 1)),
        (("--spec=onnx", "--allowzero", "--reshape=x.*=-1"), (24,)),
    ],
)
def test_specifications(words, shape, folder, capsys):
    run("convert", folder / "in.safetensors", folder / "out", *words, capsys=capsys)
    assert safetensors.read(folder / "out").tensors["x.weight"].shape == shape


@pytest.mark.parametrize(
    ("before", "behind", "shape"),
    [
        (("--spec", "onnx"), (), (2, 12)),
        (("--special-zero",), ("--spec", "openvino"), (2, 12)),
        (("--spec=openvino", "--special-zero"), (), (2, 12)),
        (("--spec", "torch"), ("--spec", "onnx"), (2, 12)),  # the last one counts
        (("--spec=onnx", "--allowzero"), (), None),
        ((), (), None),
    ],
)
def test_what_rules_mean_may_stand_before_the_command(before, behind, shape, folder, capsys):
    source, out = folder / "in.safetensors", folder / "out"
    words = (*before, "convert", source, out, "--reshape", "x.*=0,-1", *behind)
    if shape is None:
        refused(*words, words="cannot reshape (2, 3, 4) into [0, -1]", capsys=capsys)
    else:
        run(*words, capsys=capsys)
        assert safetensors.read(out).tensors["x.weight"].shape == shape


def test_json_may_stand_before_the_command(folder, capsys):
    source = folder / "in.safetensors"
    for words in (("inspect", source), ("dtypes",)):
        texts = [
            run(*line, capsys=capsys)[0]
            for line in (("--json", *words), (*words, "--json"), ("--json", *words, "--json"))
        ]
        assert json.loads(texts[0])
        assert len(set(texts)) == 1
    assert json.loads(run("--json", "convert", source, folder / "out", capsys=capsys)[0])


@pytest.mark.parametrize("option", ["--spec=onnx", "--special-zero", "--allowzero"])
def test_commands_without_rules_take_no_meaning_of_rules(option, folder, capsys):
    words = f"{option.split('=')[0]} is for commands with rules"
    refused(option, "inspect", folder / "in.safetensors", words=words, capsys=capsys)
    refused("dtypes", option, words=f"unknown option '{option.split('=')[0]}'", capsys=capsys)


BAD = [
    (("--reshape", "x.*=5,-1"), "tensor 'x.weight': cannot reshape (2, 3, 4) into [5, -1]"),
    (("--reshape", "x.*=0,-1"), "cannot reshape (2, 3, 4) into [0, -1]"),
    (("--reshape", "y=6", "--permute", "x.*=0,1"), "tensor 'x.weight': axes (0, 1)"),
    (("--reshape", "x=24"), "no tensor has a name that --reshape x=24 matches"),
    (("--reshape", "x.*"), "has no '='"),
    (("--permute", "(=0"), "not a regular expression"),
    (("--permute", "y=a"), "'a' is not an integer"),
    (("--reshape", "y=" + "9" * 5000), "is not an integer"),
    (("--spec", "onednn", "--reshape", "y=2,3"), "f32, f16 and bf16, not int8"),
    (("--special-zero",), "--special-zero is not an attribute of --spec array"),
    (("--spec", "onnx", "--special-zero"), "--special-zero is not an attribute of --spec onnx"),
    (("--spec", "openvino", "--allowzero"), "--allowzero is not an attribute of --spec openvino"),
    (("--spec", "torch"), "unknown specification 'torch'"),
    (("--reshape",), "expected one argument"),
    (("--resh", "y=6"), "unknown option '--resh'"),
    (("more",), "unexpected argument 'more'"),
]


@pytest.mark.parametrize(("words", "text"), BAD, ids=lambda x: x if isinstance(x, str) else "")
def test_bad_rules_leave_the_destination_untouched(words, text, folder, capsys):
    out = folder / "out"
    out.write_bytes(b"old")
    refused("convert", folder / "in.safetensors", out, *words, words=text, capsys=capsys)
    assert out.read_bytes() == b"old"
    assert sorted(p.name for p in folder.iterdir()) == ["in.safetensors", "out"]


def test_bad_paths(folder, capsys):
    source, out = folder / "in.safetensors", folder / "out"
    for source_path, target_path, words in (
        (folder / "none", out, "none: No such file or directory"),
        (folder.parent, out, f"{folder.parent}: it is not a regular file"),
        (source, folder, f"{folder}: it is a folder, so it cannot be replaced by a file"),
        (source, folder / "none" / "out", "none/out: No such file or directory"),
        (source, source / "out", "in.safetensors/out: Not a directory"),
        (source, "/dev/null", "/dev/null: it is not a regular file"),
        (source, folder / ("n" * 300), "File name too long"),
        (source, f"{out}/", f"{out}/: it names a folder, not a file"),
        (source, "a\0b", "'a\\x00b': no file can have this name"),
        ("\0", out, "'\\x00': no file can have this name"),
    ):
        refused("convert", source_path, target_path, words=words, capsys=capsys)
    assert list(folder.iterdir()) == [source]
    err = refused("inspect", "\0", words="'\\x00': no file can have this name", capsys=capsys)
    assert err.count("\n") == 1


def test_a_broken_source(folder, capsys):
    bad = folder / "bad.safetensors"
    bad.write_bytes((folder / "in.safetensors").read_bytes()[:-1])
    words = f"{bad}: tensor 'p': its data end at byte 126, but the file has 125 bytes of data"
    refused("convert", bad, folder / "out", words=words, capsys=capsys)
    refused("inspect", bad, words=words, capsys=capsys)
    assert not (folder / "out").exists()


MOVED = ("--permute", "x.*=2,1,0", "--permute", "p=1,0")


@pytest.mark.parametrize(
    ("fault", "code"), [(OSError(28, "No space left on device"), 2), (KeyboardInterrupt(), 130)]
)
@pytest.mark.parametrize(("call", "words"), [("write", MOVED), ("copy_file_range", ())])
def test_a_failure_amid_writing(call, words, fault, code, folder, capsys, monkeypatch):
    out = folder / "out"
    out.write_bytes(b"old")
    write, calls = getattr(os, call), []

    def fail_later(*given):
        calls.append(given)
        if len(calls) == 3:
            raise fault
        return write(*given)

    monkeypatch.setattr(os, call, fail_later)
    _, err = run("convert", folder / "in.safetensors", out, *words, code=code, capsys=capsys)
    monkeypatch.undo()
    words = "interrupted" if code == 130 else f"{out}: No space left on device"
    assert f"shapejit: error: {words}" in err
    assert out.read_bytes() == b"old"
    assert sorted(p.name for p in folder.iterdir()) == ["in.safetensors", "out"]


@pytest.mark.parametrize(("name", "code"), [("SIGTERM", 143), ("SIGHUP", 129)])
def test_termination_cleans_up(name, code, folder, capsys, monkeypatch):
    if not hasattr(signal, name):
        pytest.skip("this system has no such signal")
    number = getattr(signal, name)
    out = folder / "out"
    out.write_bytes(b"old")
    write, unlink, calls, seen = os.write, os.unlink, [], []

    def terminate_later(descriptor, data):
        calls.append(len(data))
        if len(calls) == 3:
            seen.extend(p.name for p in folder.iterdir() if p.suffix == ".tmp")
            os.kill(os.getpid(), number)
        return write(descriptor, data)

    def terminate_again(path):
        os.kill(os.getpid(), number)
        unlink(path)

    monkeypatch.setattr(os, "write", terminate_later)
    monkeypatch.setattr(os, "unlink", terminate_again)
    handler = signal.signal(number, lambda *_: None)
    try:
        mine = signal.getsignal(number)
        _, err = run("convert", folder / "in.safetensors", out, *MOVED, code=code, capsys=capsys)
        assert signal.getsignal(number) is mine
    finally:
        signal.signal(number, handler)
    monkeypatch.undo()
    assert err.endswith("shapejit: error: terminated\n")
    assert len(seen) == 1
    assert out.read_bytes() == b"old"
    assert sorted(p.name for p in folder.iterdir()) == ["in.safetensors", "out"]


def test_a_process_that_is_terminated(folder):
    code = (
        "import os, sys, time; from shapejit.__main__ import main\n"
        "def wait(*_): print('here', flush=True); time.sleep(600)\n"
        "os.fsync = wait\n"
        "sys.exit(main(['convert', 'in.safetensors', 'out']))"
    )
    command = [sys.executable, "-c", code]
    with subprocess.Popen(command, cwd=folder, stdout=-1, stderr=-1, text=True) as process:
        assert process.stdout.readline() == "here\n"
        assert len(list(folder.iterdir())) == 2
        process.terminate()
        _, err = process.communicate(timeout=600)
    assert process.returncode == 143
    assert err.endswith("shapejit: error: terminated\n")
    assert [p.name for p in folder.iterdir()] == ["in.safetensors"]


def test_a_caller_that_ignores_termination_or_has_another_thread(folder, capsys):
    handler = signal.signal(signal.SIGTERM, signal.SIG_IGN)
    try:
        run("dtypes", capsys=capsys)
        assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGTERM, handler)
    codes = []
    thread = threading.Thread(target=lambda: codes.append(main(["dtypes"])))
    thread.start()
    thread.join()
    assert codes == [0]


def test_a_disk_without_room(folder):
    def little_room():
        resource.setrlimit(resource.RLIMIT_FSIZE, (200, 200))

    out = folder / "out"
    done = shell("convert", folder / "in.safetensors", out, preexec_fn=little_room)
    assert done.returncode == 2
    assert done.stdout == ""
    assert done.stderr.splitlines()[-1].endswith(f"shapejit: error: {out}: File too large")
    assert [p.name for p in folder.iterdir()] == ["in.safetensors"]


# inspect, dtypes, and the rest


def test_inspect(folder, capsys):
    out, err = run("inspect", folder / "in.safetensors", capsys=capsys)
    assert err == ""
    lines = out.splitlines()
    assert lines[0].split() == ["name", "dtype", "shape", "bytes", "begin", "end"]
    assert lines[1].split() == ["x.weight", "float32", "[2,3,4]", "96", "0", "96"]
    assert lines[3].split() == ["p", "float4_e2m1fn", "[8,6]", "24", "102", "126"]
    assert "note: 'line\\nbreak'" in lines
    assert lines[-1] == "3 tensors, 126 bytes"


def test_one_tensor_is_not_several(tmp_path, capsys):
    sj.save_file({"a": np.zeros(1, np.int8)}, tmp_path / "a.npy")
    words = ["convert", tmp_path / "a.npy", tmp_path / "b.npz"]
    assert run("inspect", tmp_path / "a.npy", capsys=capsys)[0].endswith("\n1 tensor, 1 byte\n")
    assert run(*words, "--dry-run", capsys=capsys)[0].endswith("\n1 tensor, 1 byte\n")
    assert ": 1 tensor written: 0 converted, 1 copied" in run(*words, capsys=capsys)[0]


def test_inspect_json(folder, capsys):
    found = json.loads(run("inspect", folder / "in.safetensors", "--json", capsys=capsys)[0])
    assert found["nbytes"] == 126
    assert found["metadata"] == {"format": "pt", "note": "line\nbreak"}
    assert found["tensors"][1] == {
        "name": "y",
        "dtype": "int8",
        "shape": [6],
        "nbytes": 6,
        "offsets": [96, 102],
    }


def test_inspect_a_file_without_tensors(tmp_path, capsys):
    file_formats.write(tmp_path / "a", [])
    assert run("inspect", tmp_path / "a", capsys=capsys)[0].endswith("0 tensors, 0 bytes\n")


INTERRUPTS_ITSELF = "import os, signal, time; os.kill(os.getpid(), signal.SIGINT); time.sleep(600)"
SCRIPT = "import sys; from shapejit.__main__ import main; sys.exit(main())"  # as pip writes it


@pytest.mark.parametrize("how", ["module", "script"])
@pytest.mark.parametrize(
    ("during", "command"), [("numpy", "dtypes"), ("ml_dtypes", "dtypes"), ("tqdm", "convert")]
)
def test_an_interrupt_while_modules_are_imported(during, command, how, tmp_path):
    (tmp_path / f"{during}.py").write_text(INTERRUPTS_ITSELF)
    (tmp_path / "shapejit").write_text(SCRIPT)
    start = {"module": ["-m", "shapejit"], "script": [str(tmp_path / "shapejit")]}[how]
    root = os.path.dirname(os.path.dirname(sj.__file__))
    done = subprocess.run(
        [sys.executable, *start, command],
        env={**os.environ, "PYTHONPATH": f"{tmp_path}:{root}"},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


def test_importing_the_package_leaves_interrupts_alone():
    code = (
        "import signal, shapejit, shapejit.__main__; "
        "assert signal.getsignal(signal.SIGINT) is signal.default_int_handler"
    )
    assert subprocess.run([sys.executable, "-c", code, "shapejit"], check=False).returncode == 0


@pytest.mark.parametrize("first", ["shapejit.cast", "import shapejit.adapters"])
def test_imports_collect_no_garbage(first):
    """They would look at all objects of the process, which are a million where torch is loaded."""
    code = (
        "import gc, onnx, shapejit; found = []; "
        "gc.callbacks.append(lambda phase, info: found.append(info['generation'])); "
        f"gc.set_threshold(50, 1, 1); {first}; found = found[:]; gc.set_threshold(0); "
        "assert gc.isenabled() and 'shapejit.operations.casts' in __import__('sys').modules; "
        "assert len(found) < 20, found"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_tests_of_interrupts_pass_where_interrupts_are_ignored():
    """As behind nohup."""
    name = f"{__file__}::{test_importing_the_package_leaves_interrupts_alone.__name__}"
    words = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    ignored = partial(signal.signal, signal.SIGINT, signal.SIG_IGN)
    done = subprocess.run(words, preexec_fn=ignored, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout


def test_control_characters_are_shown_escaped(folder, capsys):
    odd = "a\x1b[2J\nb"
    for words in (("inspect", odd), ("convert", odd, "out"), ("inspect", "x", odd)):
        _, err = run(*words, code=2, capsys=capsys)
        assert err.rstrip("\n").isprintable()
        assert r"a\x1b[2J\nb" in err
    out, _ = run("convert", folder / "in.safetensors", folder / odd, capsys=capsys)
    assert out.rstrip("\n").isprintable()


def test_long_words_are_shortened_in_errors(folder, capsys):
    source = folder / "in.safetensors"
    for words in (("inspect", "x" * 10**5), ("inspect", source, "y" * 10**5)):
        _, err = run(*words, code=2, capsys=capsys)
        assert len(err) < 1000


def test_names_that_a_terminal_cannot_show(tmp_path):
    t = sj.Tensor.frombuffer(b"1", "uint8", ())
    file_formats.write(tmp_path / "a", [New.of("é", t), New.of("\x1b[2J\n", t)], {"ü": "ö"})
    done = shell("inspect", tmp_path / "a", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert (done.returncode, done.stderr) == (0, "")
    assert "\\xe9" in done.stdout
    assert "'\\x1b[2J\\n'" in done.stdout


def test_dtypes(capsys):
    out, err = run("dtypes", capsys=capsys)
    assert err == ""
    assert len(out.splitlines()) == len(sj.dtypes.all()) + 1
    found = json.loads(run("dtypes", "--json", capsys=capsys)[0])
    assert [row["name"] for row in found] == [kind.name for kind in sj.dtypes.all()]
    row = next(row for row in found if row["name"] == "bfloat16")
    assert row["bits"] == 16
    assert (row["onnx"], row["safetensors"], row["dlpack"]) == (16, "BF16", [4, 16])


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("none",), "unknown command 'none'; known are convert, inspect"),
        (("convrt", "a", "b"), "unknown command 'convrt'; did you mean 'convert'?"),
        (("--versoin",), "unknown option '--versoin'; did you mean '--version'? (see shapejit -"),
        (("inspect", "a", "b"), "unexpected argument 'b' (see shapejit inspect --help)"),
        (("convert", "a", "b", "--reshap=x=3"), "'--reshap'; did you mean '--reshape'?"),
        (("convert", "a", "b", "--cast", "x=bflot16"), "did you mean 'bfloat16'?"),
        (("bench", "--rounds", "a"), "argument --rounds: not an integer: 'a'"),
        (("bench", "--seed", "1" * 999), "not an integer: '111"),
        (("bench", "--size", "65"), "not a number above 0 and at most 64: 65"),
        (("bench", "--suite", "view"), "unknown: 'view'; did you mean 'views'?"),
        (("verify", "a", "b", "--tolerance", "nan"), "not a number from 0 on: nan"),
        (("inspect",), "required: FILE"),
        (("convert", "a"), "required: DST"),
        (("dtypes", "--nothing"), "unknown option '--nothing' (see shapejit dtypes --help)"),
    ],
)
def test_bad_arguments(words, text, capsys):
    refused(*words, words=text, capsys=capsys)


def test_no_command_prints_help(capsys):
    out, err = run(code=2, capsys=capsys)
    assert out == ""
    assert err == run("--help", capsys=capsys)[0]
    assert all(f"\n    {name} " in err for name in ("convert", "inspect", "demo"))
    assert run("help", "convert", capsys=capsys) == run("convert", "--help", capsys=capsys)


COMMANDS = (
    "convert",
    "inspect",
    "verify",
    "demo",
    "dtypes",
    "formats",
    "schemes",
    "bench",
    "warmup",
)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_explains_every_option(command, capsys, monkeypatch):
    """An option with its metavar is followed by two blanks, or a line break, and its text."""
    monkeypatch.setenv("COLUMNS", "100")
    out, _ = run(command, "--help", capsys=capsys)
    assert out.partition("\n\n")[2][:1].isupper()
    options = re.findall(r"^  (-\S.*(?:\n {3,}.*)*)", out, re.MULTILINE)
    assert len(options) >= 3
    unexplained = [text for text in options if len(re.split(r"  +|\n", text)) < 2]
    assert unexplained == []


@pytest.mark.parametrize("words", [("--help",), ("convert", "--help"), ("--version",)])
def test_help_and_version(words, capsys):
    out, err = run(*words, capsys=capsys)
    assert err == ""
    assert "shapejit" in out
    assert words != ("--version",) or out == f"shapejit {sj.__version__}\n"


def test_as_a_module(folder):
    done = shell("inspect", folder / "in.safetensors")
    assert (done.returncode, done.stderr) == (0, "")
    done = shell("inspect", folder / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"shapejit: error: {folder / 'none'}: No such file or directory\n"


@pytest.mark.parametrize("words", [("--help",), ("dtypes",), ("inspect", "in.safetensors")])
def test_commands_that_move_nothing_import_no_compiler(words, folder):
    code = (
        "import sys; from shapejit.__main__ import main\n"
        f"assert main({list(words)!r}) == 0\n"
        "assert not {'numba', 'llvmlite'} & sys.modules.keys()"
    )
    assert subprocess.run([sys.executable, "-c", code], cwd=folder, stdout=-3).returncode == 0


@pytest.mark.parametrize(
    ("words", "code", "closed"),
    [
        *[(words, 0, ">&-") for words in ("--help", "dtypes --json", "inspect in.safetensors")],
        *[("inspect none", 2, closed) for closed in (">&-", "2>&-", ">&- 2>&-")],
        *[("convert in.safetensors out", 0, closed) for closed in ("2>&-", ">&- 2>&-")],
        ("none", 2, ">&- 2>&-"),
    ],
)
def test_a_closed_stream(words, code, closed, folder):
    command = f"{sys.executable} -m shapejit {words} {closed}"
    done = subprocess.run(["bash", "-c", command], cwd=folder, capture_output=True, text=True)
    assert done.returncode == code
    if code or ">&-" in closed.split():
        assert done.stdout == ""
    if code and closed == ">&-":
        assert done.stderr.startswith("shapejit: error: ")
    assert "Traceback" not in done.stderr
    if words.startswith("convert"):
        found = safetensors.read(folder / "out")
        assert found.metadata == safetensors.read(folder / "in.safetensors").metadata
        assert (folder / "out").stat().st_size == (folder / "in.safetensors").stat().st_size


def test_a_reader_that_goes_away(folder):
    command = f"{sys.executable} -m shapejit dtypes --json"
    done = subprocess.run(
        ["bash", "-c", f"{command} | true; echo ${{PIPESTATUS[0]}}"], capture_output=True, text=True
    )
    assert done.stderr == ""
    assert done.stdout.strip() in ("0", str(128 + signal.SIGPIPE))


def test_a_stdout_that_is_full():
    with open("/dev/full", "w") as full:
        done = subprocess.run(
            [sys.executable, "-m", "shapejit", "dtypes"], stdout=full, stderr=-1, text=True
        )
    assert done.returncode == 2
    assert done.stderr == "shapejit: error: No space left on device\n"
