"""benchmarks/: asv's classes run; recording, comparing, and the measured parts of READMEs."""

import json
import os
import subprocess
import sys
from argparse import ArgumentParser
from importlib import import_module
from math import isfinite, log
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

import shapejit as sj
from benchmarks.suite import counters, emission, tables
from benchmarks.suite.machine_code import ISAS
from benchmarks.tools import (
    check,
    compare,
    conversion,
    figures,
    lines,
    machines,
    picture,
    readme,
    record,
    repository,
    tiers,
    timelines,
    trials,
)

ROOT = Path(__file__).parent.parent
AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
COMMANDS = (
    check,
    compare,
    conversion,
    figures,
    readme,
    record,
    tiers,
)


# asv's classes


@pytest.fixture(scope="module")
def classes():
    """The benchmark classes as asv has them, by MODULE.CLASS."""
    ratios = import_module("benchmarks.suite.ratios")
    made = {f"ratios.{name}": one for name, one in vars(ratios).items() if isinstance(one, type)}
    made |= {f"counters.{one.__name__}": one for one in (counters.Allocated, counters.Memory)}
    return {name: one for name, one in made.items() if hasattr(one, "params")}


@pytest.fixture
def small(monkeypatch):
    """Few bytes."""
    monkeypatch.setattr(tables, "NBYTES", 1 << 17)


def tracked(kind):
    return [name for name in dir(kind) if name.startswith(("ratio_", "track_", "peakmem_"))]


def test_every_class_is_measured(classes, small):
    """Each with its first case: what all of them do, `test_bench` and asv's own run show."""
    assert len(classes) > 20
    for name, kind in classes.items():
        (method,) = tracked(kind)
        made, case = kind(), kind.params[0]
        assert kind.version.isdigit(), name
        assert len(set(kind.params)) == len(kind.params)
        if name == "ratios.FirstCall":
            continue  # new processes, many times
        made.setup(case)
        if method.startswith("ratio_"):
            found = getattr(made, method)(case, turns=2)
            assert len(found) == 2
            assert all(isfinite(x) and x > 0 for x in found), name
            assert getattr(kind, method).unit.startswith("time / ")
        else:
            found = getattr(made, method)(case)
            assert found is None or found >= 0


def test_no_case_is_lacking_today(small):
    """What a recorded case calls is there: on this commit nothing is n/a."""
    for name, suite in tables.suites.SUITES.items():
        for case in tables.suites.recorded(name).values():
            if name not in ("busy", "first-call"):
                ways = tables.pair(case, suite.baseline)
                assert set(ways) == {"shapejit", suite.baseline}, case.id


def test_what_a_package_lacks_is_told_from_what_is_broken():
    def broken():
        raise RuntimeError("broken")

    with pytest.raises(RuntimeError, match="broken"):
        tables.called(broken)
    with pytest.raises(NotImplementedError):
        tables.called(lambda: sj.reshape(np.zeros(3), (3,), no_such_word=1))


def test_an_older_package_lacks_what_is_new(small):
    """n/a is no failure, nor the reverse."""
    case = tables.suites.recorded("functions")["take/rows-64B"]
    with pytest.raises(NotImplementedError, match="take"):
        tables.pair(case, "numpy", SimpleNamespace(reshape=sj.reshape))


def test_cases_do_not_come_from_the_measured_package(tmp_path):
    """They are loaded by path, and import no shapejit until one is called."""
    code = f"""if True:
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        from importlib.util import module_from_spec, spec_from_file_location
        spec = spec_from_file_location("tables", {str(ROOT / "benchmarks/suite/tables.py")!r})
        tables = module_from_spec(spec)
        spec.loader.exec_module(tables)
        assert "shapejit" not in sys.modules
        assert tables.measured().__file__.startswith({str(tmp_path)!r})
        case = tables.suites.recorded("small")["8x8/uint8"]
        assert tables.pair(case, "numpy")["shapejit"]() == "another"
    """
    (tmp_path / "shapejit").mkdir()
    (tmp_path / "shapejit/__init__.py").write_text("ascontiguous = lambda x, out: 'another'\n")
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run([sys.executable, "-P", "-c", code], cwd=os.sep, env=environment)
    assert done.returncode == 0


def test_every_public_function_is_measured():
    """By its name in the tables of cases, as an attribute of the measured package."""
    source = "".join(p.read_text() for p in (ROOT / "shapejit/bench").glob("*.py"))
    others = "suite/counters.py", "tools/tiers.py"
    source += "".join((ROOT / "benchmarks" / name).read_text() for name in others)
    functions = [n for n in sj.__all__ if callable(getattr(sj, n)) and n.islower()]
    assert len(functions) > 25
    named = {
        n for n in functions if f"sj.{n}" in source or f"m.{n}(" in source or f'"{n}", ' in source
    }
    assert set(functions) - named == set()


# asv itself, in an environment that is there already


@pytest.fixture
def asv(tmp_path, monkeypatch):
    """A function that runs asv on this repository, with results of its own."""
    config = json.loads((ROOT / "asv.conf.json").read_text())
    config |= {"repo": str(ROOT), "benchmark_dir": str(ROOT / "benchmarks" / "suite")}
    config |= {"results_dir": str(tmp_path / "results"), "html_dir": str(tmp_path / "html")}
    config |= {"branches": ["HEAD"], "matrix": {}, "environment_type": "existing"}
    (tmp_path / "asv.conf.json").write_text(json.dumps(config))
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("ASV_CONF_DIR", raising=False)
    facts = {"machine": "m", "os": "", "arch": "", "cpu": "", "num_cpu": "", "ram": ""}
    (tmp_path / ".asv-machine.json").write_text(json.dumps({"m": facts, "version": 1}))

    def run(*words):
        command = [sys.executable, "-m", "asv", *words, "--config", str(tmp_path / "asv.conf.json")]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)

    return run


def test_asv_runs_one_case_quickly_and_publishes(asv, tmp_path):
    commit = repository.commit_named("HEAD")
    words = ["--quick", "--bench", r"Small.*8x8/uint8", "--machine", "m"]
    words += ["--set-commit-hash", commit, "--environment", f"existing:{sys.executable}"]
    done = asv("run", *words)
    assert done.returncode == 0, done.stdout + done.stderr
    (path,) = (tmp_path / "results" / "m").glob(f"{commit[:8]}-*.json")
    found = record.values(path)
    (name,) = found
    assert name == "ratios.Small.ratio_over_numpy"
    first, *others = found[name]
    assert first > 0
    assert not any(value == value for value in others)  # the others are n/a
    assert asv("publish").returncode == 0
    assert list((tmp_path / "html" / "graphs").rglob(f"{name}.json"))


# Recording


def stored(folder, commit, *values, name="ratios.Small.ratio_over_numpy"):
    """A results file as asv writes it."""
    row = [list(values), [["'x'"]], "1", 1, 0.5]
    columns = ["result", "params", "version", "started_at", "duration"]
    folder.mkdir(parents=True, exist_ok=True)
    made = {"commit_hash": commit, "result_columns": columns, "results": {name: row}}
    path = folder / f"{commit[:8]}-virtualenv-py3.11.json"
    path.write_text(json.dumps(made))
    return path


@pytest.fixture
def clone(tmp_path, monkeypatch):
    """A repository of five commits of a package and one of a README; results of it."""
    folder = tmp_path / "repository"
    (folder / "shapejit").mkdir(parents=True)
    git = repository.git
    git("init", "--quiet", "--initial-branch=main", cwd=folder)
    commits = []
    for k in range(6):
        name = "README.md" if k == 5 else "shapejit/__init__.py"
        (folder / name).write_text(f"one = {k}\n")
        git("add", ".", cwd=folder)
        git(*AUTHOR, "commit", "--quiet", "--message", f"{k}", cwd=folder)
        commits.append(repository.commit_named("HEAD", folder))
    monkeypatch.setattr(repository, "ROOT", folder)
    monkeypatch.setattr(record, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(machines, "RESULTS", tmp_path / "results")
    monkeypatch.setattr(os, "getloadavg", lambda: (0.1, 0.1, 0.1))
    return SimpleNamespace(folder=folder, results=tmp_path / "results", commits=commits)


@pytest.fixture
def recording(clone, monkeypatch):
    """What `record` would have asv run."""
    asked = []
    monkeypatch.setattr(record, "record", lambda commits, *_: asked.append(commits) or 0)
    return asked


def test_what_is_recorded_is_left_out(clone, recording):
    *package, last = clone.commits
    assert record.main(["--machine", "m"]) == 0
    assert recording == [[last]]
    assert record.missing("m") == package
    stored(clone.results / "m", package[2], 1.5)
    stored(clone.results / "m", package[3], None)  # as of a commit that could not be built
    stored(clone.results / "m", package[4], float("nan"))
    assert record.missing("m") == [*package[:2], *package[3:]]
    assert record.missing("m", since=package[1]) == package[3:]
    stored(clone.results / "m", last, 2.0)
    assert record.main(["--machine", "m"]) == 0
    assert len(recording) == 1


def test_steps_are_spread_by_asv_over_what_is_missing(clone, monkeypatch):
    asked = []
    monkeypatch.setattr(record, "record", lambda *words: asked.append(words) or 0)
    assert record.main(["--steps", "2", "--machine", "m"]) == 0
    ((commits, _, _, more),) = asked
    assert (commits, more) == (clone.commits[:5], ["--steps", "2"])


def test_a_busy_machine_is_refused(clone, recording, monkeypatch, capsys):
    monkeypatch.setattr(os, "getloadavg", lambda: (0.8, 0.1, 0.1))
    assert record.main(["--machine", "m"]) == 2
    assert "load average 0.8" in capsys.readouterr().err
    assert record.main(["--busy", "--machine", "m"]) == 0
    assert len(recording) == 1


def test_a_machine_keeps_its_facts(clone):
    first = record.machine("m")
    assert set(first) == {"machine", "os", "arch", "cpu", "num_cpu", "ram"}
    (clone.results / "m").mkdir(parents=True)
    facts = {**first, "os": "another kernel", "version": 1}
    (clone.results / "m" / "machine.json").write_text(json.dumps(facts))
    assert record.machine("m")["os"] == "another kernel"
    assert record.machine()["machine"].endswith("-cores")


def test_machines_are_named_by_what_matters(tmp_path, monkeypatch):
    facts = "vendor_id : AuthenticAMD\ncpu family : {}\nmodel : 17\ncpu MHz : {}\n"
    facts += "model name : AMD EPYC\nflags : sse2 avx2{}\n"
    info = tmp_path / "cpuinfo"
    monkeypatch.setattr(import_module("shapejit.bench.machine"), "CPUINFO", info)
    monkeypatch.setattr(machines, "data_caches", lambda: [(1, 1 << 15), (2, 1 << 20), (3, 1 << 25)])
    names = []
    for family, mhz, more in ((25, 2445.4, ""), (25, 2445.9, ""), (26, 2445.4, " avx512f")):
        info.write_text(facts.format(family, mhz, more))
        names.append(machines.name_of_this())
    cores = f"{os.cpu_count()}-cores"
    assert names[0] == names[1] == f"amd-25-17-avx2-l2-1024k-l3-32768k-{cores}"
    assert names[2] == f"amd-26-17-avx512-l2-1024k-l3-32768k-{cores}"


# Checking


FIGURES = {"x86-64-v3 spills": 10, "x86-64-v3 instructions": 1000, "bytes of view": 0}


@pytest.mark.parametrize(
    ("name", "value", "grown"),
    [
        ("x86-64-v3 spills", 11, True),
        ("x86-64-v3 spills", 9, False),
        ("x86-64-v3 instructions", 1009, False),  # less than 1 %
        ("x86-64-v3 instructions", 1011, True),
        ("bytes of view", 4096, True),
        ("neoverse-v1 spills", 5, False),  # not recorded
    ],
)
def test_a_step_is_a_failure_unless_a_message_says_why(name, value, grown, clone, monkeypatch):
    first = clone.commits[2]
    monkeypatch.setattr(check, "point", lambda: (first, FIGURES))
    monkeypatch.setattr(check, "now", lambda: {**FIGURES, name: value})
    assert check.main([]) == int(grown)
    message = "A new kernel\n\nPerformance: it is twice as fast, and larger"
    repository.git(*AUTHOR, "commit", "-q", "--allow-empty", "-m", message, cwd=clone.folder)
    assert check.main([]) == 0


def test_nothing_is_checked_where_nothing_changed(clone, monkeypatch, capsys):
    monkeypatch.setattr(check, "point", lambda: (clone.commits[4], FIGURES))
    assert check.main([]) == 0
    assert "nothing that is measured has changed" in capsys.readouterr().out


def test_the_last_point_of_this_history_is_read(clone):
    assert check.point(clone.results) is None
    for k, spills in ((1, 7.0), (3, 9.0)):
        path = stored(clone.results / "m", clone.commits[k], spills, 2.0, 3.0)
        made = json.loads(path.read_text())
        (row,) = made["results"].values()
        names = [figure.replace(" ", "_") for figure in check.FIGURES]
        made["results"] = {f"machine_code.MachineCode.track_{name}": row for name in names}
        path.write_text(json.dumps(made))
    stored(clone.results / "n", clone.commits[4], 1.0)  # without machine code
    commit, found = check.point(clone.results)
    assert commit == clone.commits[3]
    assert [found[f"{isa} spills"] for isa in ISAS] == [9.0, 2.0, 3.0]


# Comparing


def measured_as(changes, noises):
    pairs = zip(changes, noises, strict=True)
    return [trials.Trial(log(c), log(1 + n), 2.0) for c, n in pairs]


HERE = trials.Source(str(ROOT))
RESOLVE = {"calls/resolve/onnx": "numpy"}


def sides(second=HERE):
    """The sources of a comparison."""
    return {"first": HERE, "again": HERE, "second": second}


def beside(folder, code):
    """A place whose processes run this code when they begin."""
    (folder / "sitecustomize.py").write_text(code)
    return trials.Source(f"{folder}{os.pathsep}{ROOT}")


@pytest.mark.parametrize(
    ("changes", "noises", "slower"),
    [
        ([1.5] * 6, [0.02] * 6, True),
        ([1.12] * 6, [0.02] * 6, True),
        ([1.08] * 6, [0.02] * 6, False),  # below 10 %
        ([1.0] * 6, [0.02] * 6, False),
        ([0.5] * 6, [0.02] * 6, False),
        ([1.3] * 6, [0.4, 0.4, 0.1, 0.1, 0.1, 0.1], False),  # within the noise
        ([1.5] * 5 + [1.0], [0.02] * 6, True),
        ([1.5] * 4 + [1.0] * 2, [0.02] * 6, False),  # not each time
        ([1.5] * 2 + [1.0], [0.02] * 3, False),
        ([1.8, 1.8, 1.1], [0.02] * 3, True),
        ([1.3] * 6, [0.9, 0.1, 0.1, 0.1, 0.1, 0.1], True),  # one trial was disturbed
        ([1.0, 3.0, 1.0, 1.0, 3.0, 1.0], [0.02] * 6, False),
    ],
)
def test_verdicts(changes, noises, slower):
    found = compare.verdict("a/x", "memcpy", measured_as(changes, noises))
    assert found.slower is slower
    assert (found.benchmark, found.unit) == ("a/x", "time / memcpy's")
    assert slower is (found.change > max(0.1, found.noise))
    assert found.second == pytest.approx(found.first * (1 + found.change))
    if slower:
        line = compare.text(compare.Comparisons([found], [])).splitlines()[0]
        assert line.startswith("slower: a/x: 2 -> ")
        assert f"noise {found.noise:.0%}" in line
    inverse = compare.verdict("a/x", "memcpy", measured_as([1 / c for c in changes], noises))
    assert inverse.faster is slower
    assert ("faster: a/x" in compare.text(compare.Comparisons([inverse], []))) is slower


def test_the_mean_of_a_suite_is_geometric():
    changes = {"a/x": 0.21, "a/y": 0.0, "b/x": -0.5}
    found = [
        compare.Verdict(n, "", 2.0, 2 + 2 * c, 0.0, False, False, c) for n, c in changes.items()
    ]
    lines = compare.text(compare.Comparisons(found, [])).splitlines()
    assert lines[:2] == ["suite a: +10.0% in the mean of 2", "suite b: -50.0% in the mean of 1"]


@pytest.mark.parametrize(
    ("changes", "slower"),
    [
        ([0.5, 1.0], False),
        ([1.0, 3.0], False),  # nothing seems to differ at first
        ([3.0, 1.0], False),
        ([3.0, 1.5], True),
        ([1.15, 1.15], True),
    ],
)
def test_what_seems_to_differ_is_measured_again(changes, slower, monkeypatch):
    """The changes that are found in the first trials, and in those of new processes."""
    found = iter(changes)

    def measured(cases, sources, times, fresh, tell):
        change = next(found) if cases else 1
        return {case: measured_as([change] * times, [0.02] * times) for case in cases}, {}

    monkeypatch.setattr(compare, "measured", measured)
    assert compare.timed({"a/x": "memcpy"}, {}).verdicts[0].slower is slower


def test_a_slower_function_is_found(tmp_path):
    """Processes for real, one of them with a resolver that does its work nine times."""
    code = "import shapejit\nreal = shapejit.resolve\n"
    code += "shapejit.resolve = lambda *a: [real(*a) for _ in range(9)][0]\n"
    (verdict,) = compare.timed(RESOLVE, sides(beside(tmp_path, code))).verdicts
    assert verdict.slower
    assert verdict.change > 1
    absent = "calls/no-such"
    cases = {absent: "numpy", **RESOLVE}
    found, hindered = trials.measured(cases, sides(), 1, False, lambda case: None)
    ((made,),) = found.values()
    assert made.first > 0
    assert "no-such" in hindered[absent].reason
    assert not hindered[absent].fails


def test_what_cannot_be_imported_is_no_gap(tmp_path):
    """A package that is broken fails; it does not just lack what is measured."""
    (tmp_path / "shapejit").mkdir()
    (tmp_path / "shapejit" / "__init__.py").write_text("import no_such_module\n")
    found = compare.timed(RESOLVE, sides(trials.Source(str(tmp_path))))
    assert found.verdicts == []
    assert "no_such_module" in found.fails[0].reason


def test_what_is_left_and_why():
    good, bad, absent = {}, {"failed": "ValueError: x"}, {"missing": "cast"}

    def why(*replies):
        return trials.left("a/x", dict(zip(trials.SIDES, replies, strict=True)))

    assert why(good, good, good) is None
    assert why(good, good, absent) == trials.Left("a/x", "the second commit lacks it: cast", False)
    assert why(absent, absent, good).reason.startswith("the first commit lacks it")
    assert not why(bad, bad, bad).fails
    assert why(good, good, bad).fails
    lines = compare.text(compare.Comparisons([], [why(good, good, bad)])).splitlines()
    assert lines[0] == "not compared: a/x: fails on the second commit: ValueError: x"


def test_a_process_that_ends_leaves_the_others(tmp_path):
    code = "import os, shapejit\nshapejit.resolve = lambda *a: os._exit(3)\n"
    cases = {f"calls/{call}/onnx": "numpy" for call in ("resolve", "request")}
    sources = sides(beside(tmp_path, code))
    found, hindered = trials.measured(cases, sources, 1, False, lambda case: None)
    (ended,) = RESOLVE
    assert hindered[ended].fails
    assert "its process has ended (3)" in hindered[ended].reason
    assert list(found) == ["calls/request/onnx"]


def test_a_process_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(trials.pipe, "TIMEOUT", 0.5)
    side = trials.Side("second", beside(tmp_path, "import time\ntime.sleep(60)\n"))
    assert "has ended" in side.ask(take="calls/resolve/onnx", baseline="numpy")["failed"]
    side.close()


def test_two_commits_are_compared_from_their_sources(clone, capsys):
    """What a commit lacks is said; of this one there is only a module without functions."""
    words = [*clone.commits[:2], "--repository", str(clone.folder), "--bench", *RESOLVE]
    assert compare.main(words) == 2
    assert "nothing could be compared" in capsys.readouterr().err
    found = trials.Source(repository.extract(clone.commits[0], clone.folder / "0", clone.folder))
    assert (Path(found.folder) / "shapejit" / "__init__.py").read_text() == "one = 0\n"


@pytest.mark.parametrize(("slower", "code"), [(True, 1), (False, 0)])
def test_exit_codes(monkeypatch, capsys, slower, code):
    one = compare.Verdict("a/x", "time / memcpy's", 1.0, 1.5, 0.02, slower, False, 0.5)
    monkeypatch.setattr(compare, "timed", lambda *_, **__: compare.Comparisons([one], []))
    assert compare.main(["HEAD", "HEAD"]) == code
    said = capsys.readouterr().out
    assert ("slower: a/x: 1 -> 1.5 time / memcpy's, +50%, noise 2%" in said) is slower


@pytest.mark.parametrize(("fails", "code"), [(True, 1), (False, 2)])
def test_nothing_compared_is_no_success(monkeypatch, capsys, fails, code):
    left = trials.Left("a/x", "fails on one commit", fails)
    monkeypatch.setattr(compare, "timed", lambda *_, **__: compare.Comparisons([], [left]))
    assert compare.main(["HEAD", "HEAD"]) == code
    assert "not compared: a/x" in capsys.readouterr().out


def test_counters_count_exactly():
    assert check.allocated() == check.allocated() != {}


def test_a_value_of_the_second_side_is_measured(monkeypatch, capsys):
    """A name of a module has another value in one of the three processes."""
    monkeypatch.setattr(compare, "TRIALS", 1)
    monkeypatch.setattr(compare, "AGAIN", 1)
    words = ["HEAD", "HEAD", "--bench", "calls/resolve/onnx", "--with"]
    assert compare.main([*words, "programs.batch.PREFIX=1"]) == 2
    assert "PREFIX" in capsys.readouterr().err
    assert compare.main([*words, "bench.suites.BUSY='none'"]) in (0, 1)
    assert "calls" in capsys.readouterr().out


# Machine code


def test_kernels_are_compiled_for_another_processor():
    """One case's; that the same source has the same figures, `check` shows with every commit."""
    from benchmarks.suite.machine_code import emitted, totals

    (found,) = emitted(["neoverse-v1"], patterns=["^ttc/ttc-01"], folder=str(ROOT)).values()
    assert found["failed"] == {}
    assert totals(found)["instructions"] > 100
    assert totals(found)["kernels"] > 0


@pytest.mark.parametrize(
    ("line", "arm", "figures"),
    [
        ("\tvmovdqu64\t(%rdi,%rax), %zmm3", False, set()),
        ("\tvmovups\t%ymm0, 32(%rsp)                 # 32-byte Spill", False, {"spills"}),
        ("\taddq\t16(%rsp), %rax                  # 8-byte Folded Reload", False, set()),
        ("\tretq", False, set()),
        ("\tstr\tx8, [sp, #24]                   // 8-byte Spill", True, {"spills"}),
        ("\tadd\tx0, x1, #8", True, set()),
        (".LBB0_1:", False, None),
        ("\t.p2align\t4", False, None),
    ],
)  # fmt: skip
def test_what_is_counted_of_an_instruction(line, arm, figures):
    found = emission.counted(line, arm)
    wanted = set() if figures is None else {"instructions", *figures}
    assert {name for name, count in found.items() if count} == wanted


# What READMEs say


def test_what_readmes_say_of_speed_is_written_from_what_is_recorded():
    for name, text in readme.files(figures.recorded()).items():
        assert (ROOT / name).read_text() == text, f"{name}: run python -m benchmarks.tools.readme"


def test_every_line_is_recorded_under_its_name_and_is_a_case():
    found = figures.recorded()
    assert all(lines.seconds(found, line) for line in lines.LINES)
    known = {case.id for name in tables.suites.SUITES for case in tables.suites.select((name,))}
    assert {f"{line.suite}/{line.name}" for line in lines.LINES} <= known


def test_the_tables_and_the_picture():
    taken = {"shapejit": 1.0, "memcpy": 0.5, "numpy": 12.4, "torch": 2.5}
    name = "weight-transposed-4096x14336-10/bfloat16"
    facts = {"cpu": "<C>", "architecture": "a", "threads": 2, "numpy": "2", "numba": "0"}
    found = {
        "rows": [{"suite": "workloads", "name": name, "seconds": taken}],
        "machine": {**facts, "peers": {"torch": "9"}},
        "settings": {"quick": False, "size": 1.0},
        "commits": ["0123456789"],
    }
    (*_, line) = lines.table(found).splitlines()
    assert line.endswith("| `np.ascontiguousarray(w.T)` | `sj.ascontiguous(w.T)` | 12 | 2.5 |")
    text = readme.table(found).splitlines()
    assert "01234567" in text[0]
    assert text[-2].split() == ["workloads", "1", "2.00", "2.00", "12.4x", "2.5x"]
    bars = lines.bars(found)
    assert bars == [("transpose a bfloat16 weight", 0.5, 0.5 / 12.4, "12x")]
    drawn = ElementTree.fromstring(picture.svg(bars, "<C>", "dark"))
    assert [part.text for part in drawn.iter() if part.text and "C" in part.text] == ["<C>"]
    with pytest.raises(repository.RecordError, match="has no"):
        readme.written("README.md", "no markers", found)


def test_entries_are_kept_by_day(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    monkeypatch.setattr(figures, "git", lambda *w: "" if w[0] == "status" else "0" * 40)
    words = ["--busy", "--suite", "tiny-dims", "--size", "1e-6", "--rounds", "1", "--peer", "none"]
    (tmp_path / "2020-01-01-m.json").write_text("{}")
    assert figures.main([*words, "--machine", "m"]) == 0
    assert len(list(tmp_path.glob("*-m.json"))) == 2
    (row,) = figures.recorded()["rows"]
    assert row["seconds"]["numpy"] > 0


def test_a_conversion_is_measured_beside_torchs(tmp_path, monkeypatch, capsys):
    """Both results are compared, and the record is the table of the README."""
    pytest.importorskip("torch")
    monkeypatch.setattr(conversion, "CONVERSIONS", tmp_path)
    assert conversion.main(["--busy", "--size", "1KiB", "--rounds", "1", "--record"]) == 0
    said = capsys.readouterr().out
    assert conversion.table() in said
    assert said.endswith("the results are the same\n")
    ways = json.loads(machines.last(tmp_path))["ways"]
    assert all(s > 0 and 1e6 < peak < 8e9 for s, peak in ways.values())


TIMES = {"numpy": 0.1, "second": 0.1, "sixth": 0.1, "last": 0.004, "later": 0.004}
CURVE = [[0.1, 0.1], [0.2, 0.1], [1.0, 0.004], [10.0, 0.004]]


def timelines_of(**changes):
    """A record of one row: NumPy takes 100 ms, kernels 4."""
    row = {"kernels": 0.004}
    for cache, others in (("warm", changes), ("empty", {})):
        found = {**TIMES, "longest": 0.12, "curve": CURVE, **others}
        row[cache] = found | {"settled": timelines.settled(found["curve"], 0.004)}
    return {"commit": "0123456789", "cpu": "<C>", "threads": 2, "rows": {"a": row}}


@pytest.mark.parametrize(
    ("changes", "column"),
    [
        ({}, None),
        ({"longest": 0.211}, "longest"),  # more than 1.5 times NumPy's time and 60 ms
        ({"sixth": 0.161}, "all but 5"),
        ({"curve": [[0.4, 0.1], *CURVE[2:]]}, "as kernels after"),
        ({"curve": [*CURVE, [11.0, 0.1]]}, "as kernels after"),
    ],
)
def test_limits_of_timelines(changes, column):
    record = timelines_of(**changes)
    assert timelines.unmet(record) == ([f"a, warm cache: {column}"] if column else [])
    assert timelines.table(record).count("!") == bool(column) + 1
    record["rows"][timelines.SHOWN] = record["rows"]["a"]
    assert "the slowest call takes" in timelines.sentence(record).replace("\n", " ")


def test_timelines_are_measured_in_new_processes(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(timelines, "TIERS", tmp_path)
    monkeypatch.setattr(tiers, "TIERS", tmp_path)
    monkeypatch.setattr(readme, "main", lambda argv: 0)
    monkeypatch.setattr(tiers, "KERNELS", 0.1)
    words = ["--busy", "--record", "--rounds", "1", "--seconds", "0.3", "--rows", "concat"]
    assert tiers.main(words) in (0, 1)
    (row,) = timelines.recorded()["rows"].values()
    assert row["kernels"] > 0
    assert row["warm"]["longest"] >= row["warm"]["sixth"] > 0
    assert row["warm"]["settled"] >= 0
    assert timelines.table(timelines.recorded()) in capsys.readouterr().out


# How commands end


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_what_breaks_is_not_slower(command, monkeypatch, capsys):
    """Python itself ends with 1."""

    def broken(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(ArgumentParser, "parse_known_args", broken)
    assert command.main([]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("command", "words", "text"),
    [
        (compare, ["no-such-commit", "HEAD"], "names no commit"),
        (compare, ["HEAD", "HEAD", "--bench", "no such benchmark"], "no benchmark matches"),
        (compare, ["HEAD", "HEAD", "--bench", "("], "unterminated"),
        (record, ["no-such-commit"], "names no commit"),
        (record, ["--steps", "1", "--since", "no-such-commit"], "names no commit"),
        (compare, ["HEAD", "HEAD", "--with", "no value"], "wants MODULE.NAME=VALUE"),
        (tiers, ["--busy", "--rows", "no such row"], "matches no row"),
    ],
)
def test_bad_arguments(command, words, text, capsys):
    assert command.main(words) == 2
    assert text in capsys.readouterr().err
