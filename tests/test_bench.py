"""`shapejit bench`: its tables of cases, its proofs, its output."""

import itertools
import json
import os
import subprocess
import sys
from collections import Counter
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from compiled import COMPILED
from views import packed_bytes

import shapejit as sj
from shapejit.__main__ import main
from shapejit.bench import comparison, measure, packed, peers, pipe, random_copies, suites, ttc
from shapejit.bench.calls import COPIED_RESHAPES, RESHAPES
from shapejit.bench.cases import MIB, OURS, CallCase, Copy, bits_of
from shapejit.bench.casts import Cast
from shapejit.bench.worker import pattern

ALONE = ("busy", "first-call")  # suites whose cases start processes
ALL = [case for name in suites.SUITES if name not in ALONE for case in suites.select((name,))]
# The recorded ones, and as many of each suite as show what its tables are made of.
SHOWN = {
    case.id
    for name, suite in suites.SUITES.items()
    for case in (*suites.evenly(suite.cases(), 16), *suites.recorded(name).values())
}
SOME = [case for case in ALL if case.id in SHOWN]
COPIES = [case for case in ALL if type(case) is Copy]


def small(case, nbytes=1 << 14):
    """A case of few bytes."""
    size = case.moved or getattr(case, "nbytes", 0)
    return case.scaled(min(1.0, nbytes / size)) if size else case


def bench(*arguments, code=0, capsys):
    words = ["bench", "--rounds", "1", *arguments]
    assert main(words if "--peer" in arguments else [*words, "--peer", "none"]) == code
    return capsys.readouterr()


@pytest.fixture
def fast(monkeypatch):
    """Every turn is one call."""
    real = comparison.turns
    monkeypatch.setattr(comparison, "turns", lambda clocks, *_: real(clocks, 1, 0))


# The tables


def test_the_published_cases():
    assert len(ttc.CASES) == 57
    assert ttc.CASES[0] == ((7264, 7264), (1, 0))
    assert ttc.CASES[56] == ((112, 15, 15, 15, 5, 32), (5, 4, 3, 2, 1, 0))
    for shape, axes in ttc.CASES:
        assert sorted(axes) == list(range(len(shape)))
        assert 190 * MIB < 4 * prod(shape) < 240 * MIB
    ranks = ((2, 3), (3, 9), (4, 15), (5, 15), (6, 15))
    assert [len(shape) for shape, _ in ttc.CASES] == [r for r, times in ranks for _ in range(times)]


def test_names_are_unique_and_sizes_count():
    assert len({case.id for case in ALL}) == len(ALL)
    for case in COPIES:
        seen = case.view(np.broadcast_to(np.empty((), f"V{case.itemsize}"), case.shape))
        assert case.moved == seen.nbytes
        assert case.group == "tiers" or 48 * MIB < case.moved <= 260 * MIB, case.id


@pytest.mark.parametrize("case", SOME, ids=lambda case: case.id)
def test_every_way_has_the_same_result(case):
    """Ours and each of the others, in small; a case that proves nothing says so."""
    ways = small(case).ways(sj)
    assert next(iter(ways)) == OURS
    proved, differing, _ = comparison.prove(case, sj, ways)
    assert differing == []
    assert proved is (case.id != "batch/warmup")  # which returns nothing


def test_a_result_that_differs_is_found():
    x = np.arange(6)
    ways = {OURS: lambda: x, "numpy": lambda: x.copy(), "wrong": lambda: x + 1, "none": id}
    ways["none"] = lambda: None
    case = CallCase("calls", "x", ways.get)
    assert comparison.prove(case, sj, ways)[:2] == (True, ["wrong"])
    assert comparison.prove(case, sj, {OURS: lambda: None, "numpy": lambda: x})[:2] == (False, [])
    shapes = {OURS: lambda: (12, 3), "same": lambda: [12, 3], "wrong": lambda: (1, 23)}
    assert comparison.prove(case, sj, shapes)[:2] == (True, ["wrong"])
    read = replace(case, read=lambda sj, made: made[0])
    assert comparison.prove(read, sj, shapes | {"wrong": lambda: (12, 4)})[:2] == (True, [])
    assert comparison.raw([x, (x,)]) == 2 * x.tobytes()
    assert comparison.raw([1, object()]) is None


@pytest.mark.parametrize("name", [name for name, s in suites.SUITES.items() if s.recorded])
def test_what_the_history_has_is_in_the_table(name):
    suite = suites.SUITES[name]
    found = suites.recorded(name)
    assert list(found) == list(suite.recorded)
    assert len(suites.recorded(name, True)) == len(suite.cases())
    if name not in ALONE:
        for case in found.values():
            ways = suites.all_ways(case.scaled(2**-10), sj)
            assert suite.baseline in ways or case.moved >= MIB, case.id


def test_the_history_has_about_forty_cases():
    assert 35 <= sum(len(suites.recorded(name)) for name in suites.SUITES) <= 60


def test_random_cases_are_those_of_their_seed():
    assert random_copies.cases(3) == random_copies.cases(3)
    assert random_copies.cases(3) != random_copies.cases(4)
    assert suites.select(("random",), seed=3) == random_copies.cases(3)
    found = random_copies.cases(3) + random_copies.cases(4)
    assert {len(case.shape) for case in found} == {2, 3, 4, 5, 6}
    assert {case.itemsize for case in found} == {1, 2, 4, 8, 16}


def test_random_permutations_have_every_width():
    made = suites.select(("permutations",), seed=3)
    assert made == random_copies.permutations(3) != random_copies.permutations(4)
    assert len({case.id for case in made}) == len(made)
    widths = Counter(case.dtype for case in made)
    assert {bits_of(dtype) for dtype in widths} == {1, 2, 4, 8, 16, 32, 64, 128}
    assert set(widths.values()) == {200}
    for case in made:
        assert 0.85 < case.source_nbytes / (64 * MIB) < 1.15
        assert sorted(case.axes) == [*range(len(case.shape))] != [*case.axes]


@pytest.mark.parametrize("case", random_copies.cases(5)[:20], ids=lambda case: case.id)
def test_random_cases_count_the_lines_that_they_touch(case):
    tiny = case.scaled(2**-20)
    bytes_of_elements = np.arange(tiny.source_nbytes).reshape(*tiny.shape, tiny.itemsize)
    kept, axes = (*tiny.cuts, (0.0, 1.0, 1)), (*tiny.axes, len(tiny.shape))
    seen = replace(tiny, shape=bytes_of_elements.shape, cuts=kept, axes=axes)
    result = seen.view(bytes_of_elements).reshape(-1)
    touched = sum(min(64, tiny.source_nbytes - 64 * n) for n in {b // 64 for b in result.tolist()})
    assert abs(tiny.moved - (touched + result.size) / 2) <= 64


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 24, 1001])
def test_numpys_packing(bits, size):
    codes = pattern(size) & np.uint8((1 << bits) - 1)
    raw = packed.packed_by_numpy(codes, bits)
    assert raw.tobytes() == packed_bytes(codes, bits)
    assert np.array_equal(packed.unpacked_by_numpy(raw, bits, size), codes)


@pytest.mark.parametrize("factor", [0.25, 0.5, 2])
def test_a_scaled_case_is_the_same_kind_of_case(factor):
    case = Copy("odd", "x", "float32", (4095, 4097), (1, 0))
    scaled = case.scaled(factor)
    assert scaled.source_nbytes == pytest.approx(factor * case.source_nbytes, rel=0.05)
    assert [d % 16 for d in scaled.shape] == [15, 1]
    images = Copy("workloads", "x", "uint8", (32, 3, 224, 224), (0, 2, 3, 1)).scaled(factor)
    assert images.shape[1] == 3


def test_a_batch_grows():
    images = Copy("x", "x", "uint8", (32, 3, 224, 224), (0, 2, 3, 1)).batched(64 * MIB)
    assert images.moved >= 64 * MIB
    assert (images.shape[0] % 32, images.shape[1:]) == (0, (3, 224, 224))
    weights = Copy("x", "x", "uint8", (4096, 4096), (1, 0)).batched(64 * MIB)
    assert (weights.shape, weights.axes) == ((4, 4096, 4096), (0, 2, 1))


def test_the_reshapes_copy_where_the_table_says():
    for copied, table in ((False, RESHAPES), (True, COPIED_RESHAPES)):
        for name, (x, target) in table.items():
            for got in (x.reshape(target), sj.reshape(x, target)):
                assert np.shares_memory(got, x) is not copied, name


# The measurement


def test_slow_ways_sit_late_rounds_out():
    played = {"slow": 0, "fast": 0}

    def run(name, seconds):
        def turn(calls):
            played[name] += 1
            return calls * seconds

        return turn

    found = measure.turns({n: run(n, s) for n, s in (("slow", 2.0), ("fast", 0.01))}, 9)
    assert found == {"slow": 2.0, "fast": pytest.approx(0.01)}
    assert played["slow"] < played["fast"]


def test_a_way_that_waited_for_the_compiler_is_repeated_as_often_as_others():
    asked = []

    def run(calls):
        asked.append(calls)
        return 3.0 if len(asked) == 1 else 3e-5 + calls * 1e-6

    assert measure.turns({"a": run}, 9, seconds=0.002) == {"a": pytest.approx(1e-6, rel=0.5)}
    assert min(asked[3:]) > 500


def test_every_turn_is_a_sample():
    seconds = itertools.count(1)
    taken = measure.samples({"a": lambda calls: calls * next(seconds) * 1e-3}, 4, 0)
    assert taken == {"a": pytest.approx([5e-3, 6e-3, 7e-3, 8e-3])}


def test_threads_are_told_to_wait_shortly(monkeypatch):
    for name in measure.WAIT:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("KMP_BLOCKTIME", "7")
    measure.wait_shortly()
    assert os.environ["KMP_BLOCKTIME"] == "7"
    assert int(os.environ["GOMP_SPINCOUNT"]) < 100_000


def test_memcpy_copies_every_byte():
    from shapejit.bench.memcpy import PAGE, memcpy_of

    for nbytes in (1, PAGE - 1, 3 * PAGE + 5):
        for threads in (1, 2):
            way = memcpy_of(nbytes, threads)
            source, target = way.args[1]
            source[:] = pattern(nbytes)
            way()
            assert np.array_equal(source, target)


def row(name, group="ttc", **seconds):
    case = Copy(group, name, "float32", (4096, 4096), (1, 0))
    return comparison.Measured(case, {name.replace("_", " "): s for name, s in seconds.items()})


def test_ratios_and_summaries():
    rows = [
        row("a", shapejit=2.0, memcpy=1.0, numpy=8.0),
        row("b", shapejit=8.0, memcpy=1.0, numpy=8.0, torch=4.0),
        row("c", "small", shapejit=1.0, numpy=2.0),
    ]
    assert (rows[0].over("memcpy"), rows[0].over("numpy"), rows[0].over("torch")) == (2, 0.25, None)
    found = {(s.suite, s.way): s for s in comparison.summaries(rows)}
    memcpy = found["ttc", "memcpy"]
    assert (memcpy.cases, memcpy.worst, memcpy.worst_case) == (2, 8, "ttc/b")
    assert memcpy.geometric_mean == pytest.approx(4)
    assert found["ttc", "numpy"].worst == 1
    assert found["ttc", "torch"].cases == 1
    assert ("small", "memcpy") not in found


def test_a_row_tells_that_the_cores_were_busy():
    assert not row("a", shapejit=2, memcpy=1, memcpy_of_one_thread=1.5).disturbed
    assert row("a", shapejit=2, memcpy=2, memcpy_of_one_thread=1.5).disturbed


def test_threads_are_what_was_asked():
    with pytest.raises(ValueError, match="--threads 9999"):
        comparison.use_threads(9999)


def test_vectors_are_chosen_before_a_kernel_is_looked_for(capsys):
    pytest.importorskip("llvmlite")
    assert main(["bench", "--suite", "small", "--vectors", "sse2"]) == 2
    assert "--vectors sse2: only on x86, and before kernels" in capsys.readouterr().err


# Peers


def job(*args, **more):
    return Copy("odd", "x", *args, **more).job


def test_a_peer_in_its_own_process():
    with peers.started(("numpy",)) as (peer,):
        assert peer.version == np.__version__
        for case in (
            Copy("views", "a", "bfloat16", (9, 7), look=lambda a: a[::-1, 1::2]),
            Copy("odd", "b", "float32", (33, 31), (1, 0), shift=4),
            Copy("fresh", "c", "uint8", (5, 6, 7), (2, 0, 1), fresh=True),
        ):
            found = comparison.measure(sj, case, [peer], rounds=1)
            assert found.differing == ()
            assert found.seconds["numpy"] > 0
        assert peer.take(job("float32", (3, 3), (1, 0), shift=1), 1) is None
        assert peer.take(None, 1) is None
    assert peer.ended


STARTING = """
import subprocess, sys
late = "import time; file = open({0!r}, 'w'); time.sleep(300); file.write('it is still there')"
subprocess.Popen([sys.executable, "-S", "-c", late])
"""


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes")
def test_what_a_peer_started_ends_with_it(tmp_path):
    """As the process by which OpenVINO tells its makers that it is imported."""
    os.mkfifo(tmp_path / "late")
    (tmp_path / "starting.py").write_text(STARTING.format(str(tmp_path / "late")))
    process = pipe.Process(sys.executable, str(tmp_path / "starting.py"))
    with open(tmp_path / "late") as file:
        process.close()
        assert file.read() == ""


@pytest.fixture(scope="module")
def peer(request):
    """The process of a library, for all cases that it is asked for."""
    pytest.importorskip(request.param)
    with peers.started((request.param,)) as others:
        yield others


@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32", "float64", "complex128"])
@pytest.mark.parametrize("peer", ["torch", "onnxruntime", "openvino", "jax"], indirect=True)
def test_peers_agree(peer, dtype):
    fresh, name = Copy("fresh", "x", dtype, (5, 6, 7), (2, 0, 1), fresh=True), peer[0].name
    for case in (fresh, replace(fresh, fresh=False)):
        found = comparison.measure(sj, case, peer, rounds=1)
        assert found.differing == ()
        lacks = dtype == "complex128" and name == "onnxruntime"
        lacks |= name == "openvino" and (case.fresh or case.itemsize > 4)
        assert (name in found.seconds) is not lacks


@pytest.mark.parametrize(
    "case",
    [
        Cast("casts", "x", "float32", (256, 384), (0, 1), target="bfloat16"),
        Cast("casts", "x", "bfloat16", (256, 384), (0, 1), target="float8_e5m2"),
        Cast("casts", "x", "float8_e4m3fn", (256, 384), (1, 0), target="bfloat16"),
        Cast("casts", "x", "int8", (256, 384), (1, 0), target="float32"),
        Cast("casts", "x", "uint8", (3, 8, 8, 3), (0, 3, 1, 2), target="float32",
             blocks=(3, 8, 8, 1)),
        *[c.scaled(2**-12) for c in suites.select(("joins",))[::7]],
    ],
    ids=lambda case: f"{case.id}-{case.dtype}",
)  # fmt: skip
@pytest.mark.parametrize("peer", ["torch"], indirect=True)
def test_casts_and_joins_by_torch_agree(case, peer):
    found = comparison.measure(sj, case, peer, rounds=1)
    assert found.differing == ()
    assert found.seconds["torch"] > 0


def test_a_missing_peer_is_absent(monkeypatch, capsys, fast):
    monkeypatch.setattr(peers, "is_installed", lambda name: False)
    assert main(["bench", "--suite", "small", "--quick", "--rounds", "1", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["machine"]["peers"] == {}


# The command


def test_json(capsys, fast):
    out, err = bench("--quick", "--size", "1e-6", "--json", capsys=capsys)
    found = json.loads(out)
    assert set(found) == {"machine", "settings", "rows", "summary", "disturbed", "kernels"}
    assert {"cpu", "cores", "threads", "numba", "numpy", "load_average"} <= set(found["machine"])
    default = {name for name, suite in suites.SUITES.items() if suite.default}
    assert {row["suite"] for row in found["rows"]} == default
    for one in found["rows"]:
        assert one["proved"] is True
        assert one["differing"] == []
        assert min(one["seconds"].values()) > 0
    assert all(part["geometric_mean"] > 0 and part["cases"] > 0 for part in found["summary"])
    assert not COMPILED or found["kernels"]["ready"] > 5
    assert err == ""  # progress is for terminals


def test_table(capsys, fast):
    words = ("--suite", "views", "--suite", "small", "--case", "flip|8x8", "--size", "0.01")
    out, _ = bench(*words, capsys=capsys)
    for text in (
        "views/flip-both/float32",
        "small/8x8/uint8",
        "faster than numpy",
        "numba 0.",
        "kernels: ",
    ):
        assert text in out
    assert "slice" not in out
    assert "time/memcpy" in out


def test_a_wrong_bit_is_found(capsys, monkeypatch, fast):
    real = sj.ascontiguous

    def wrong(x, out=None):
        made = real(x, out=out)
        made.reshape(-1).view(np.uint8)[-1] ^= 1
        return made

    monkeypatch.setattr(sj, "ascontiguous", wrong)
    out, _ = bench("--suite", "odd", "--case", "257x257", "--size", "1e-4", code=1, capsys=capsys)
    assert "NOT the same bits as by numpy: odd/257x257x257-210/float32" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--suite", "nope"), "unknown: 'nope'"),
        (("--case", "("), "not a regular expression"),
        (("--case", "no such case"), "no case of the suites matches"),
        (("--size", "0"), "not a number above 0"),
        (("--rounds", "0"), "not from 1"),
        (("--threads", "9999"), "--threads 9999"),
        (("--peer", "nope"), "the peers are"),
        (("--peer", "torch=/no/such/python"), "No such file"),
    ],
)
def test_bad_arguments(words, text, capsys):
    out, err = bench(*words, code=2, capsys=capsys)
    assert out == ""
    assert text in err
    assert "Traceback" not in err


def test_a_python_without_the_peer(tmp_path, capsys):
    """A peer that is asked for by name must be there."""
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nexec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    _, err = bench("--peer", f"torch={python}", code=2, capsys=capsys)
    assert "peer torch" in err


def test_asking_for_help_imports_no_compiler():
    code = "import sys; from shapejit.__main__ import main; main(['bench', '--help'])"
    check = "; sys.exit(bool({'numba', 'llvmlite'} & sys.modules.keys()))"
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True)
    assert done.returncode == 0
    assert "first-call" in done.stdout


def test_the_busy_suite_and_new_processes(capsys, fast):
    """Both start processes, which have ended when it ends."""
    words = ("--suite", "busy", "--suite", "first-call", "--size", "0.01")
    before = set(os.listdir("/proc")) if os.path.isdir("/proc") else set()
    out, _ = bench(*words, "--case", "transposed-1MiB|import", capsys=capsys)
    assert "busy/transposed-1MiB" in out
    assert "faster than cold" in out
    if before:
        own = [pid for pid in set(os.listdir("/proc")) - before if pid.isdigit()]
        assert not [pid for pid in own if parent(pid) == os.getpid()]


def parent(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return int(file.read().rpartition(")")[2].split()[1])
    except OSError:
        return None
