"""`shapejit bench`: its tables, its proofs, its output."""

import itertools
import json
import os
import subprocess
import sys
from dataclasses import replace
from math import prod

import numpy as np
import pytest
from views import packed_bytes

import shapejit as sj
from shapejit import engine
from shapejit.__main__ import main
from shapejit.bench import (
    busy,
    casts,
    cliffs,
    comparison,
    conversions,
    firstcall,
    measure,
    packed,
    peers,
    repacks,
    reshapes,
    schemes,
    spinning,
    suites,
    throughput,
    ttc,
    worker,
)
from shapejit.bench.cases import COUNTED, MIB, Case, pattern
from shapejit.bench.casts import CastCase
from shapejit.bench.packed import PackedCase
from shapejit.bench.repacks import RepackCase
from shapejit.bench.schemes import SchemeCase

PACKED = packed.cases()
ALL = [c for c in suites.select(tuple(suites.SUITES)) if not isinstance(c, PackedCase)]
TINY = 2**-20


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
    assert ttc.CASES[15] == ((75, 96, 75, 96), (3, 0, 2, 1))
    assert ttc.CASES[56] == ((112, 15, 15, 15, 5, 32), (5, 4, 3, 2, 1, 0))
    for shape, axes in ttc.CASES:
        assert sorted(axes) == list(range(len(shape)))
        assert 190 * MIB < 4 * prod(shape) < 240 * MIB
    assert sum(axes[-1] == len(axes) - 1 for _, axes in ttc.CASES) == 12
    assert [len(shape) for shape, _ in ttc.CASES] == [
        rank for rank, times in ((2, 3), (3, 9), (4, 15), (5, 15), (6, 15)) for _ in range(times)
    ]


def test_names_are_unique_and_sizes_count():
    assert len({case.id for case in (*ALL, *PACKED)}) == len(ALL) + len(PACKED)
    for case in PACKED:
        assert COUNTED <= case.nbytes <= 260 * MIB, case.id
    for case in ALL:
        assert case.nbytes == case.view(np.empty(case.shape, f"V{case.itemsize}")).nbytes
        if case.suite == cliffs.SUITE:
            assert 86 * MIB <= case.source_nbytes <= 106 * MIB, case.id
        elif case.suite != "small":
            assert COUNTED <= case.nbytes <= 260 * MIB, case.id
            assert case.source_nbytes <= 260 * MIB


def test_random_cases_are_those_of_their_seed():
    assert cliffs.cases(3) == cliffs.cases(3)
    assert cliffs.cases(3) != cliffs.cases(4)
    assert suites.select((cliffs.SUITE,), seed=3) == cliffs.cases(3)
    found = cliffs.cases(3) + cliffs.cases(4)
    assert {len(case.shape) for case in found} == {2, 3, 4, 5, 6}
    assert {case.itemsize for case in found} == {1, 2, 4, 8, 16}
    assert {case.name.split("-")[1] for case in found} == {"permutation", "slice", "flip"}
    assert all(min(case.shape) >= 2 for case in found)


@pytest.mark.parametrize("case", cliffs.cases(5)[:20], ids=lambda case: case.id)
def test_random_cases_count_the_lines_that_they_touch(case):
    small = case.scaled(TINY)
    bytes_of_elements = np.arange(small.source_nbytes).reshape(*small.shape, small.itemsize)
    kept = (*small.cuts, (0.0, 1.0, 1))
    axes = (*small.axes, len(small.shape))
    seen = replace(small, shape=bytes_of_elements.shape, cuts=kept, axes=axes)
    lines = {byte // 64 for byte in seen.view(bytes_of_elements).reshape(-1).tolist()}
    touched = sum(min(64, small.source_nbytes - 64 * line) for line in lines)
    assert abs(small.moved - (touched + small.nbytes) / 2) <= 64
    assert small.moved >= small.nbytes


def test_other_widths_move_as_many_bytes():
    cases = suites.select(("ttc-dtypes",))
    assert {case.dtype for case in cases} == {"uint8", "bfloat16", "float64", "complex128"}
    assert len(cases) == 48
    assert {len(case.shape) for case in cases} == {2, 3, 4, 5, 6}
    assert {case.axes[-1] == len(case.axes) - 1 for case in cases} == {True, False}


@pytest.mark.parametrize("case", ALL, ids=lambda case: case.id)
def test_every_view_is_copied_bit_for_bit(case):
    small = case if case.suite == "small" else case.scaled(TINY)
    base, out = small.source(), small.output()
    view = small.view(base)
    assert view.size > 0
    assert out.__array_interface__["data"][0] % 16 == small.shift % 16 or not small.shift
    assert comparison.same_bytes(view, out, small)
    assert not np.array_equal(comparison.raw_bytes(out)[:64], np.zeros(64)[: out.nbytes])


@pytest.mark.parametrize("case", PACKED, ids=lambda case: case.id)
def test_every_packed_case_is_the_same_by_every_way(case):
    small = case.scaled(2**-15)
    base, out = small.source(), small.output()
    small.ours(base, out)()
    assert small.proved(base, out)
    made = packed.raw_of(out)
    for name, way in small.rivals().items():
        found = way()
        raw = getattr(found, "raw_data", None)  # of a TensorProto
        theirs = packed.raw_of(np.asarray(found)) if raw is None else np.frombuffer(raw, np.uint8)
        if small.work == "unpack":
            # ml_dtypes lets signed elements fill their byte; bits above the width mean nothing.
            theirs = theirs & (1 << sj.dtype(small.dtype).bits) - 1
        assert np.array_equal(theirs, made), name
    made[made.size // 2] ^= 1
    assert not small.proved(base, out)


@pytest.mark.parametrize("case", casts.cases(), ids=lambda case: case.id)
def test_every_cast_is_the_same_by_every_way(case):
    small = case.scaled(2**-13)
    base, out = small.source(), small.output()
    small.ours(base, out)()
    assert small.proved(base, out)
    theirs = np.asarray(small.rivals()["ml_dtypes"]())
    assert np.array_equal(packed.raw_of(theirs), packed.raw_of(out.unpack()))
    out.buffer[out.buffer.size // 2] ^= 1
    assert not small.proved(base, out)
    assert 2 * small.moved >= base.nbytes + out.nbytes


@pytest.mark.parametrize("case", schemes.cases(), ids=lambda case: case.id)
def test_every_scheme_is_decoded_the_same_by_every_way(case):
    small = case.scaled(2**-13)
    base, out = small.source(), small.output()
    small.ours(base, out)()
    assert small.proved(base, out)
    assert small.rivals()["numpy"]().size == out.size
    out.buffer[out.buffer.size // 2] ^= 1
    assert not small.proved(base, out)
    assert 2 * small.moved >= base.nbytes + out.nbytes


@pytest.mark.parametrize("case", repacks.cases(), ids=lambda case: case.id)
def test_every_repacking_is_the_same_by_every_way(case):
    small = case.scaled(2**-11)
    base, out = small.source(), small.output()
    small.ours(base, out)()
    assert small.proved(base, out)
    raw = packed.raw_of(out)
    assert np.array_equal(small.rivals()["numpy"](), raw)
    assert 2 * small.moved == base.nbytes + out.nbytes
    raw[raw.size // 2] ^= 1
    assert not small.proved(base, out)


@pytest.mark.parametrize("bits", [1, 2, 3, 4, 6])
@pytest.mark.parametrize("size", [1, 7, 8, 9, 24, 1001])
def test_the_rivals_codes(bits, size):
    codes = pattern(size) & np.uint8((1 << bits) - 1)
    raw = packed.packed_by_numpy(codes, bits)
    assert raw.tobytes() == packed_bytes(codes, bits)
    assert np.array_equal(packed.unpacked_by_numpy(raw, bits, size), codes)


def test_the_limits_of_packed_tensors():
    limits = {str(case.group): case.group.limit for case in PACKED}
    assert sorted(filter(None, limits.values())) == [1.3, 1.5, 1.8, 2.0, 2.0, 2.5, 2.5, 8.0]
    assert "int4 transposed: worst at most 1.8" in limits
    assert len({c.name for c in PACKED if c.name.startswith("ttc")}) == len(ttc.SUBSET) == 12
    for case in PACKED:
        unpacked = case.work in ("pack", "unpack")
        # Bytes in and out, halved: 4 bits are read and 8 written, or the reverse.
        wanted = {"int4": 3 / 2, "int2": 5 / 2, "float6_e2m3fn": 7 / 6}
        assert case.moved == case.nbytes * (wanted[case.dtype] if unpacked else 1)


def test_rivals_of_large_cases_have_fewer_bytes(monkeypatch, fast):
    case = PACKED[0].scaled(2**-8)
    whole = comparison.measure(case, rounds=1)
    monkeypatch.setattr(comparison, "RIVAL_BYTES", case.nbytes / 8)
    scaled = comparison.measure(case, rounds=1)
    assert (whole.rivals_nbytes, case.nbytes // scaled.rivals_nbytes) == (0, 8)
    for row, suffix in ((whole, ""), (scaled, "_scaled_from_0_MiB")):
        assert row.same
        assert {"shapejit", *comparison.MEMCPYS, "numpy"} <= set(row.seconds)
        assert set(row.as_json(("numpy",))["times_faster"]) == {"numpy", *row.rivals(("numpy",))}
        monkeypatch.setattr(comparison, "RIVAL_BYTES", MIB // 2)
        found = comparison.summaries([row], ("numpy",))
        assert {part.dtype for part in found} == {"all", "int4 transposed: worst at most 1.8"}
        assert f"times_faster_than_numpy{suffix}" in {part.measure for part in found}


def test_packed_cases_are_printed_with_their_limits(capsys, fast):
    words = ("--suite", "packed", "--quick", "--size", "1e-5")
    out, _ = bench(*words, capsys=capsys)
    assert "int4, float4 TTC: mean at most 2.0" in out
    assert "packed/transposed-16384x8192/int4" in out
    assert out.count("  yes") == suites.SUITES["packed"].quick


@pytest.mark.parametrize("factor", [0.25, 0.5, 2])
def test_a_scaled_case_is_the_same_kind_of_case(factor):
    case = Case("odd", "x", "float32", (4095, 4097), (1, 0))
    scaled = case.scaled(factor)
    assert scaled.source_nbytes == pytest.approx(factor * case.source_nbytes, rel=0.05)
    assert [d % 16 for d in scaled.shape] == [15, 1]
    images = Case("workloads", "x", "uint8", (32, 3, 224, 224), (0, 2, 3, 1)).scaled(factor)
    assert images.shape[1] == 3


def test_a_batch_grows():
    images = Case("workloads", "x", "uint8", (32, 3, 224, 224), (0, 2, 3, 1)).batched()
    assert images.nbytes >= COUNTED
    assert (images.shape[0] % 32, images.shape[1:]) == (0, (3, 224, 224))
    weights = Case("workloads", "x", "uint8", (4096, 4096), (1, 0)).batched()
    assert (weights.shape, weights.axes) == ((4, 4096, 4096), (0, 2, 1))


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
    assert played == {"slow": 1 + 3, "fast": 4 + 9}


def test_a_way_that_waited_for_the_compiler_is_repeated_as_often_as_others():
    asked = []

    def run(calls):
        asked.append(calls)
        return 3.0 if len(asked) == 1 else 3e-5 + calls * 1e-6

    assert measure.turns({"a": run}, 9, seconds=0.002) == {"a": pytest.approx(1e-6, rel=0.5)}
    assert asked[:2] == [1, 1]
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


def test_the_reshapes_copy_where_the_table_says():
    for case in reshapes.RESHAPES:
        x = case.view()
        for got in (x.reshape(case.target), sj.reshape(x, case.target)):
            assert np.shares_memory(got, x) is not case.copied, case.name


def test_ratios_and_summaries():
    one = Case("ttc", "a", "float32", (4096, 4096), (1, 0))
    two, small = replace(one, name="b"), replace(one, name="c", shape=(8, 8))
    rows = [
        comparison.Row(one, {"shapejit": 2.0, "memcpy": 1.0, "numpy": 8.0}, True),
        comparison.Row(two, {"shapejit": 8.0, "memcpy": 1.0, "numpy": 8.0, "torch": 4.0}, True),
        comparison.Row(small, {"shapejit": 90.0, "memcpy": 1.0, "numpy": 1.0}, True),
    ]
    assert (rows[0].over("memcpy"), rows[0].times_faster("numpy")) == (2, 4)
    assert rows[0].times_faster("torch") is None
    found = {s.measure: s for s in comparison.summaries(rows, ("numpy", "torch"))}
    memcpy = found["over_memcpy"]
    assert (memcpy.cases, memcpy.worst, memcpy.worst_case) == (2, 8, "ttc/b/float32")
    assert memcpy.geometric_mean == pytest.approx(4)
    assert found["times_faster_than_numpy"].worst == 1
    assert found["times_faster_than_torch"].cases == 1


def test_vectors_are_chosen_before_numba_is_imported(capsys):
    pytest.importorskip("numba")
    assert main(["bench", "--suite", "small", "--vectors", "sse2"]) == 2
    assert "--vectors sse2: only on x86, and before numba" in capsys.readouterr().err


def test_the_plain_copies_copy():
    source, target = np.arange(1 << 20, dtype=np.int32), np.zeros(1 << 20, np.int32)
    for streamed in (False, True):
        target[:] = 0
        engine.memcpy(source, target, 2, streamed)
        assert np.array_equal(source, target)


def test_a_row_tells_that_the_cores_were_busy():
    case = Case("ttc", "a", "float32", (4096, 4096), (1, 0))
    quiet = {"shapejit": 2.0, "memcpy": 1.0, "memcpy_one_thread": 1.5, "numpy": 8.0}
    assert not comparison.Row(case, quiet, True).disturbed
    assert comparison.Row(case, {**quiet, "memcpy": 2.0}, True).disturbed


def test_threads_are_what_was_asked(monkeypatch):
    numba = pytest.importorskip("numba")
    before = numba.get_num_threads()
    run = comparison.one_thread(lambda calls: numba.get_num_threads())
    assert run(1) == 1
    assert numba.get_num_threads() == before
    with pytest.raises(ValueError, match="--threads 9999"):
        comparison.use_threads(9999)


def test_what_cannot_be_measured_is_no_wrong_copy(monkeypatch, capsys):
    def failing(*_):
        raise RuntimeError("the first call failed")
        yield

    monkeypatch.setattr(firstcall, "measured", failing)
    assert main(["bench", "--suite", "first-call", "--quick", "--peer", "none"]) == 2
    assert "the first call failed" in capsys.readouterr().err


# Peers


def test_a_peer_in_its_own_process():
    with peers.started(("numpy",)) as (peer,):
        assert peer.version == np.__version__
        for case in (
            Case("views", "a", "bfloat16", (9, 7), look=lambda a: a[::-1, 1::2]),
            Case("odd", "b", "float32", (33, 31), (1, 0), shift=4),
            Case("fresh", "c", "uint8", (5, 6, 7), (2, 0, 1), fresh=True),
        ):
            row = comparison.measure(case, [peer], rounds=1)
            assert row.same
            assert row.differing == ()
            assert row.seconds["numpy"] > 0
        assert peer.take(Case("odd", "d", "float32", (3, 3), (1, 0), shift=1), 1) is None
    assert peer.ended


@pytest.mark.parametrize("name", ["torch", "onnxruntime"])
@pytest.mark.parametrize("dtype", ["uint8", "bfloat16", "float32", "float64", "complex128"])
def test_peers_agree(name, dtype):
    pytest.importorskip(name)
    fresh = Case("fresh", "x", dtype, (5, 6, 7), (2, 0, 1), fresh=True)
    with peers.started((name,)) as others:
        for case in (fresh, replace(fresh, fresh=False)):
            row = comparison.measure(case, others, rounds=1)
            assert row.differing == ()
            others[0].take(case, 1)
            assert all(others[0].run(1) > 0 for _ in range(20) if name in row.seconds)
            assert name in row.seconds or (name, dtype) == ("onnxruntime", "complex128")


def cast_case(dtype, target, shape=(256, 384), axes=(0, 1), blocks=()):
    return CastCase("casts", "x", dtype, shape, axes, target=target, blocks=blocks)


def test_a_peer_that_has_no_casts_sits_them_out():
    with peers.started(("numpy",)) as others:
        row = comparison.measure(cast_case("float32", "bfloat16"), others, rounds=1)
    assert row.same
    assert row.scaled == ()
    assert "numpy" not in row.seconds


@pytest.mark.parametrize(
    "case",
    [
        cast_case("float32", "bfloat16"),
        cast_case("bfloat16", "float8_e5m2"),
        cast_case("float8_e4m3fn", "bfloat16", axes=(1, 0)),
        cast_case("int8", "float32", axes=(1, 0)),
        cast_case("uint8", "float32", (3, 8, 8, 3), (0, 3, 1, 2), (3, 8, 8, 1)),
    ],
    ids=lambda case: case.id,
)
def test_casts_by_torch_agree(case):
    pytest.importorskip("torch")
    with peers.started(("torch",)) as others:
        row = comparison.measure(case, others, rounds=1)
    assert row.same
    assert row.differing == ()
    assert row.seconds["torch"] > 0


@pytest.mark.parametrize("dtype", ["int4", "uint4"])
def test_casts_by_compressed_tensors_agree(dtype):
    pytest.importorskip("torch")
    pytest.importorskip("compressed_tensors")
    case = cast_case(dtype, "bfloat16", blocks=(1, 32))
    with peers.started(("compressed_tensors",)) as others:
        row = comparison.measure(case, others, rounds=1)
    assert row.differing == ()
    assert row.seconds["compressed_tensors"] > 0


def test_gguf_is_asked_to_decode_its_types_and_nothing_else():
    pytest.importorskip("gguf")
    with peers.started(("gguf",)) as others:
        for name, able in (("gguf:q6_k", True), ("fp8:block", False)):
            case = SchemeCase("schemes", name, "bfloat16", (32, 512), (0, 1))
            row = comparison.measure(case, others, rounds=1)
            assert ("gguf" in row.seconds) is able


def test_peers_are_asked_for_repackings_in_the_shape_of_the_source():
    case = RepackCase("repack", "", "uint4", (64, 128), source_format="awq:gemm")
    assert case.asked() == {
        "work": "repack", "shape": (128, 64), "source": "awq:gemm", "target": "lsb"
    }  # fmt: skip


def test_the_pattern_is_the_same_on_both_sides():
    assert worker.CHECKED % 16 == 0
    assert bytes(pattern(20)) == bytes(pattern(40))[:20]


def test_a_missing_peer_is_absent(monkeypatch, capsys, fast):
    monkeypatch.setattr(peers, "is_installed", lambda name: False)
    assert main(["bench", "--suite", "small", "--quick", "--rounds", "1", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["machine"]["peers"] == {}
    assert set(found["rows"][0]["times_faster"]) == {"numpy"}


# The command


def test_json(capsys, fast):
    out, err = bench("--quick", "--size", str(TINY), "--json", capsys=capsys)
    found = json.loads(out)
    assert set(found) == {"machine", "settings", "rows", "summary", "disturbed"}
    assert {"cpu", "cores", "threads", "numba", "numpy", "load_average"} <= set(found["machine"])
    assert {row["suite"] for row in found["rows"]} == {
        name for name, suite in suites.SUITES.items() if suite.default
    }
    for row in found["rows"]:
        assert row["same"] is True
        seconds = row["seconds"]
        if row["suite"] == "small":
            assert row["over_memcpy"] is row["over_limit"] is None
        else:
            for plain in ("memcpy", "limit"):
                wanted = seconds["shapejit"] / seconds[plain]
                assert row[f"over_{plain}"] == pytest.approx(wanted)
        faster = row["times_faster"]["numpy"]
        assert faster == pytest.approx(seconds["numpy"] / seconds["shapejit"])
        assert row["gb_per_s"] == pytest.approx(2e-9 * row["nbytes"] / seconds["shapejit"])
    for part in found["summary"]:
        assert part["geometric_mean"] > 0
        assert part["cases"] > 0
    assert err == ""  # progress is for terminals


def test_table(capsys, fast):
    words = ("--suite", "views", "--suite", "small", "--case", "flip|8x8", "--size", str(TINY))
    out, _ = bench(*words, capsys=capsys)
    assert "views/flip-both/float32" in out
    assert "small/8x8/uint8" in out
    assert "slice" not in out
    assert "time/memcpy" in out
    assert "faster than numpy" in out
    assert "numba 0." in out


def test_a_wrong_bit_is_found(capsys, monkeypatch, fast):
    real = sj.ascontiguous

    def wrong(x, out=None):
        made = real(x, out=out)
        made.reshape(-1).view(np.uint8)[-1] ^= 1
        return made

    monkeypatch.setattr(comparison.views, "ascontiguous", wrong)
    out, _ = bench("--suite", "odd", "--case", "257x257", "--size", "1e-4", code=1, capsys=capsys)
    assert "NOT the bits of NumPy's copy: odd/257x257x257-210/float32" in out


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--suite", "nope"), "unknown: 'nope'"),
        (("--case", "("), "not a regular expression"),
        (("--case", "no such case"), "no case of the suites matches"),
        (("--size", "0"), "not a number above 0"),
        (("--size", "nan"), "not a number above 0"),
        (("--rounds", "0"), "not from 1"),
        (("--threads", "9999"), "--threads 9999"),
        (("--peer", "nope"), "the peers are"),
        (("--peer", "torch=/no/such/python"), "No such file"),
        (("--peer", f"onnxruntime={sys.executable}x"), "No such file"),
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


def test_first_call(monkeypatch):
    seconds = iter([4.0, 2.0, 0.6, 0.25, 0.5, 0.25])
    monkeypatch.setattr(firstcall, "seconds_of", lambda code, cache: next(seconds))
    (found,) = firstcall.measured(["flip-float32"], 2, lambda _: None)
    assert (found.cold, found.cold_trivial) == (4, 2)
    assert found.warm_beyond == pytest.approx(0.55 - 0.25)
    assert found.as_json()["warm_trivial"] == 0.25


def test_first_call_code_runs():
    made = firstcall.CALLS["transpose-uint8"]
    ours = firstcall.OURS.format(code=made.code)
    assert firstcall.seconds_of(firstcall.CLOCK.format(dtype=made.dtype, call=ours), "") > 0


def test_asking_for_help_imports_no_numba():
    code = "import sys; from shapejit.__main__ import main; main(['bench', '--help'])"
    check = "; sys.exit('numba' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code + check], capture_output=True, text=True)
    assert done.returncode == 0
    assert "first-call" in done.stdout


# Batches


SUITES = {"batch": throughput.CASES, "busy": busy.CASES}


@pytest.mark.parametrize(("suite", "name"), [(s, n) for s in SUITES for n in SUITES[s]])
def test_a_batch_is_proved_and_measured(suite, name, monkeypatch):
    real = throughput.turns
    monkeypatch.setattr(throughput, "turns", lambda clocks, *_: real(clocks, 1, 0))
    case = {name: SUITES[suite][name]}
    (found,) = throughput.measured(suite, case, 1, 0.002, lambda _: None)
    assert found.same
    assert all(found.seconds[goal.way] > 0 for goal in found.goals)
    assert {goal.kind for goal in found.goals} <= {"at least", "at most", "beyond"}
    made = found.as_json()
    assert made["suite"] == suite
    assert [goal["ratio"] for goal in made["goals"]] == [found.ratio(g) for g in found.goals]


@pytest.mark.parametrize("name", conversions.QUICK)
def test_conversions_of_checkpoints_are_proved_and_measured(name, monkeypatch):
    real = throughput.turns
    monkeypatch.setattr(throughput, "turns", lambda clocks, *_: real(clocks, 1, 0))
    case = {name: conversions.CASES[name]}
    (found,) = throughput.measured("files", case, 1, 0.001, lambda _: None)
    assert found.same
    assert set(found.seconds) == {"shapejit", "cp"}
    ((goal,),) = (found.goals,)
    assert (goal.kind, goal.way) == ("at most", "cp")


def test_conversions_by_peers(tmp_path, monkeypatch):
    """One that has a way is measured beside ours; NumPy has none."""
    real = throughput.turns
    monkeypatch.setattr(throughput, "turns", lambda clocks, *_: real(clocks, 1, 0))

    class Copies:
        name, given = "copies", []

        def give(self, job):
            self.given.append(job)
            return 1

        def run(self, calls):
            return 1.0

        def drop(self):
            self.given.append(None)

    name, one = "deepseek-v3-to-bf16", Copies()
    with peers.started(("numpy",)) as others:
        case = {name: conversions.CASES[name]}
        (found,) = throughput.measured("files", case, 1, 0.001, lambda _: None, [*others, one])
    assert found.seconds["copies"] == 1
    assert [(g.way, g.kind, g.limit) for g in found.goals[1:]] == [("copies", "at least", 4)]
    job, last = one.given
    assert (job["work"], job["kind"], last) == ("convert", "deepseek-v3", None)


def test_the_batch_suite(capsys, monkeypatch):
    real = throughput.turns
    monkeypatch.setattr(throughput, "turns", lambda clocks, *_: real(clocks, 1, 0))
    out, _ = bench("--suite", "batch", "--size", "0.001", "--case", "resolve|call", capsys=capsys)
    assert "times faster than loop of shapejit.resolve" in out
    assert "at least 10x" in out
    assert "us beyond numpy.copyto" in out
    assert "map-" not in out
    words = ("--suite", "batch", "--quick", "--size", "0.001", "--json")
    found = json.loads(bench(*words, capsys=capsys)[0])
    assert [row["name"] for row in found["rows"]] == list(throughput.QUICK)


def test_the_busy_suite(capsys, monkeypatch):
    real = throughput.turns
    monkeypatch.setattr(throughput, "turns", lambda clocks, *_: real(clocks, 1, 0))
    started, real_process = [], subprocess.Popen

    def process(*args, **settings):
        started.append(real_process(*args, **settings))
        return started[-1]

    monkeypatch.setattr(spinning.subprocess, "Popen", process)
    out, _ = bench(
        "--suite", "busy", "--size", "0.01", "--case", "transposed-1MiB|map", capsys=capsys
    )
    assert "time over one thread of its own" in out
    assert "at most 1.15x" in out
    assert started
    assert all(one.returncode == 0 for one in started)  # they have ended


def test_a_wrong_batch_fails(capsys, monkeypatch):
    wrong = throughput.Work({"shapejit": int}, False, ())
    monkeypatch.setattr(throughput, "CASES", {"x": lambda size: wrong})
    bench("--suite", "batch", code=1, capsys=capsys)


def test_a_ratio_is_what_its_goal_is_about():
    seconds = {"shapejit": 2.0, "memcpy": 1.0, "loop": 8.0}
    figure = throughput.Figure("batch", "x", seconds, True, ())
    assert figure.ratio(throughput.Goal("loop", "at least", 5)) == 4
    assert figure.ratio(throughput.Goal("memcpy", "at most", 1.7)) == 2
    assert figure.ratio(throughput.Goal("memcpy", "beyond", 1e-6)) == 1
