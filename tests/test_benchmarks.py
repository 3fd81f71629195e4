"""benchmarks/: every class runs; recording, comparing and reading what is recorded."""

import ast
import inspect
import json
import os
import pkgutil
import shutil
import subprocess
import sys
import time
from importlib import import_module
from math import isfinite, log
from pathlib import Path
from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

import shapejit as sj
from benchmarks import (
    catalogue,
    compare,
    counters,
    demonstration,
    emission,
    figures,
    files,
    installs,
    lines,
    machine_code,
    main_loops,
    operations,
    picture,
    processors,
    ratios,
    readme,
    record,
    statements,
    tensor,
    thresholds,
    trials,
    vectors,
    worker,
)

ROOT = Path(__file__).parent.parent
CLASSES = dict(catalogue.classes())
RATIOS = {name: kind for name, kind in CLASSES.items() if issubclass(kind, ratios.Ratios)}
AUTHOR = ("-c", "user.name=test", "-c", "user.email=test@example.invalid")
COMMANDS = (
    compare,
    demonstration,
    figures,
    machine_code,
    processors,
    readme,
    record,
    thresholds,
)


# Every class


@pytest.fixture
def small(monkeypatch):
    """Few bytes, few turns."""
    monkeypatch.setattr(ratios, "NBYTES", 1 << 16)
    monkeypatch.setattr(ratios, "SECONDS", 0)
    monkeypatch.setattr(tensor, "SHAPE", (32, 64))
    monkeypatch.setattr(files, "TENSORS", 3)
    monkeypatch.setattr(counters, "NBYTES", 1 << 14)
    monkeypatch.setattr(vectors, "CASES", "views/slice-columns/")
    monkeypatch.setattr(vectors.Vectors, "params", ["sse2"])  # kernels are compiled anew
    real = ratios.measure.samples
    monkeypatch.setattr(ratios.measure, "samples", lambda clocks, _, seconds: real(clocks, 1, 0))


def cases(kind):
    return [(case,) for case in kind.params] if getattr(kind, "params", []) else [()]


def methods(kind, *prefixes):
    return [name for name in dir(kind) if name.startswith(prefixes)]


@pytest.mark.parametrize("name", RATIOS)
def test_every_ratio_is_measured(name, small):
    kind = RATIOS[name]
    found = kind().setup_cache()
    assert list(found) == list(kind.params)
    tracks = methods(kind, "track_")
    assert tracks
    for (case,) in cases(kind):
        kind().setup(found, case)
        for track in tracks:
            value = getattr(kind(), track)(found, case)
            assert isfinite(value), case
            assert value > 0
            assert getattr(kind, track).unit.startswith("time / ")


@pytest.mark.parametrize("name", [name for name in CLASSES if name not in RATIOS])
def test_every_other_benchmark_runs(name, small):
    kind = CLASSES[name]
    names = methods(kind, "time_", "timeraw_", "peakmem_", "track_")
    assert len(names) == 1
    for values in cases(kind):
        made = kind()
        if hasattr(made, "setup"):
            made.setup(*values)
        result = getattr(made, names[0])(*values)
        if names[0].startswith("track_"):
            assert isfinite(result)
            assert result >= 0
            assert getattr(kind, names[0]).unit
        elif names[0].startswith("timeraw_"):
            subprocess.run([sys.executable, "-c", result], check=True)
        if hasattr(made, "teardown"):
            made.teardown(*values)


def test_a_benchmark_that_fails_leaves_the_others(small):
    class Broken(ratios.OverNumpy):
        params = ("good", "absent", "bad")
        version = "1"

        def setup_cache(self):
            return self.measured()

        def ways(self, case):
            if case == "absent":
                ratios.installed("resolve", "no_such_function")
            return {"shapejit": lambda: None if case == "good" else 1 / 0, "numpy": lambda: None}

    found = Broken().setup_cache()
    Broken().setup(found, "good")
    with pytest.raises(NotImplementedError):
        Broken().setup(found, "absent")
    with pytest.raises(RuntimeError, match="ZeroDivisionError"):
        Broken().setup(found, "bad")


@pytest.mark.parametrize("name", RATIOS)
def test_what_a_commit_lacks_is_not_available(name, monkeypatch):
    """Every class says so of each case, by which asv tells it from a failure."""
    monkeypatch.setattr(ratios, "import_module", lambda name: SimpleNamespace())
    monkeypatch.setattr(ratios, "resolve_name", lambda name: getattr(SimpleNamespace(), name))
    monkeypatch.setattr(ratios, "seconds", lambda ways, turns: {})
    found = RATIOS[name]().setup_cache()
    assert list(found) == list(RATIOS[name].params)
    assert set(found.values()) == {None}


def test_versions_are_set_by_hand_and_caches_told_apart():
    for name, kind in CLASSES.items():
        assert kind.version.isdigit(), name
        params = list(getattr(kind, "params", []))
        assert len(set(params)) == len(params)
    lines = {(k.__module__, inspect.getsourcelines(k.setup_cache)[1]) for k in RATIOS.values()}
    assert len(lines) == len(RATIOS)
    assert all("setup_cache" in vars(kind) for kind in RATIOS.values())


def test_every_public_function_is_measured():
    """By its name in benchmarks/, as the measured package's or one of `installed`."""
    named = set()
    for path in (ROOT / "benchmarks").glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Attribute) and getattr(node.value, "id", "np") in {"sj", "m"}:
                named.add(node.attr)
            elif isinstance(node, ast.Call) and getattr(node.func, "id", "") == "installed":
                named.update(word.value for word in node.args if isinstance(word, ast.Constant))
    named |= {join[0] for join in operations.JOINS.values()}
    functions = {name for name in sj.__all__ if inspect.isfunction(getattr(sj, name))}
    assert len(functions) > 10
    assert functions <= named


def test_asv_finds_no_benchmark_that_is_not_here():
    prefixes = ("time_", "timeraw_", "track_", "peakmem_", "mem_")
    for module in pkgutil.iter_modules([str(ROOT / "benchmarks")]):
        loaded = import_module(f"benchmarks.{module.name}")
        for name, one in vars(loaded).items():
            assert not (inspect.isfunction(one) and name.startswith(prefixes)), name
            if inspect.isclass(one) and one.__module__ == loaded.__name__:
                known = f"{module.name}.{name}" in CLASSES
                assert known or inspect.isabstract(one) or not methods(one, *prefixes), name


def test_no_module_imports_the_measured_package():
    """asv forks after these imports, and shapejit stays on one thread in a child."""
    code = (
        f"import sys; sys.path.insert(0, {str(ROOT / 'benchmarks')!r}); import worker, pkgutil\n"
        "name = worker.load_benchmarks(); from importlib import import_module as load\n"
        "path = sys.modules[name].__path__\n"
        "found = [load(f'{name}.{m.name}') for m in pkgutil.iter_modules(path)]\n"
        "assert len(found) > 10; sys.exit('shapejit' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-P", "-c", code], cwd=os.sep).returncode == 0


def test_appended_cases_move_no_other(monkeypatch):
    before = operations.suite("odd", 4), operations.first_of_each("workloads")
    real = ratios.cases.Case("odd", "x-y-z", "uint8", (9, 9), (1, 0))
    suites = operations.suite.__globals__["suites"]
    select = suites.select
    monkeypatch.setattr(suites, "select", lambda names: (*select(names), real))
    after = operations.suite("odd", 4), operations.first_of_each("workloads")
    for old, new in zip(before, after, strict=True):
        assert list(new)[: len(old)] == list(old)


@pytest.mark.parametrize("bits", sorted({kind.bits for kind in tensor.DTYPES.values()}))
def test_numpys_packing_is_a_packing(bits):
    """What packed elements are measured beside does the same as they do."""
    import shapejit as sj

    codes = np.random.default_rng(bits).integers(0, 1 << bits, 24).astype(np.uint8)
    stream = tensor.packed(codes, bits)
    name = next(kind.name for kind in tensor.DTYPES.values() if kind.bits == bits)
    assert sj.pack(codes, name).tobytes() == stream.tobytes()
    assert np.array_equal(tensor.unpacked(stream, bits, 24), codes)


# Recording


def result(commit="a" * 40, value=2.0, name="bench.One.track_over_numpy", version="1"):
    """A results file as asv writes it."""
    row = [[value, float("nan")], [["'x'", "'y'"]], version, 1, 0.5]
    return {
        "commit_hash": commit,
        "env_name": "existing-py_some_python",
        "date": 1,
        "params": {"machine": "m", "python": sys.executable, "os": "Linux 1.2"},
        "python": sys.executable,
        "requirements": {},
        "env_vars": {},
        "result_columns": ["result", "params", "version", "started_at", "duration"],
        "results": {name: row},
        "durations": {},
    }


@pytest.fixture
def results(tmp_path, monkeypatch):
    folder = tmp_path / "results"
    (folder / "m").mkdir(parents=True)
    monkeypatch.setattr(record, "RESULTS", folder)
    return folder


def test_one_curve_whichever_path_the_python_has(results):
    facts = {"machine": "m", "os": "Linux"}
    for path, name in (("one", "a.A.track_over_numpy"), ("two", "b.B.track_over_numpy")):
        made = result(name=name)
        (results / "m" / f"aaaaaaaa-existing-py_{path}.json").write_text(json.dumps(made))
        record.merge_existing(facts)
    version = f"{sys.version_info.major}.{sys.version_info.minor}"
    (path,) = (results / "m").iterdir()
    assert path.name == f"aaaaaaaa-virtualenv-py{version}.json"
    found = json.loads(path.read_text())
    assert (found["python"], found["env_name"]) == (version, f"virtualenv-py{version}")
    assert found["params"] == {**facts, "python": version}
    assert set(found["results"]) == {"a.A.track_over_numpy", "b.B.track_over_numpy"}


def row_of(found):
    return found["results"]["bench.One.track_over_numpy"][0]


def test_what_was_measured_is_not_lost():
    nan = float("nan")
    both, one = result(), result()
    both["results"]["bench.One.track_over_numpy"][0] = [1.0, 2.0]
    one["results"]["bench.One.track_over_numpy"][0] = [nan, 3.0]
    one["results"]["bench.One.track_over_numpy"][3] = 2  # later
    assert row_of(record.merged(both, one)) == [1.0, 3.0]
    assert row_of(record.merged(one, both)) == [1.0, 3.0]
    one["results"]["bench.One.track_over_numpy"][0] = None  # a failure
    assert row_of(record.merged(both, one)) == [1.0, 2.0]
    one["results"]["bench.One.track_over_numpy"][:3] = [[5.0, nan], [["'x'", "'z'"]], "1"]
    assert row_of(record.merged(both, one))[0] == 5.0  # other cases
    assert record.merged({}, both) == both
    assert record.merged(both, {}) == both


def test_a_run_that_fails_leaves_what_was_there(results, monkeypatch):
    path = results / "m" / f"{'a' * 8}-virtualenv-py3.11.json"
    path.write_text(json.dumps(result()))
    failed = result()
    failed["results"]["bench.One.track_over_numpy"] = [None, [["'x'", "'y'"]], "1", 2, 0.5]

    def run(*_, **__):
        path.write_text(json.dumps(failed))
        return subprocess.CompletedProcess([], -9)

    machine = record.machine("m")
    monkeypatch.setenv("HOME", str(results))
    monkeypatch.setattr(record, "machine", lambda name: machine)
    monkeypatch.setattr(record, "subprocess", SimpleNamespace(run=run))
    assert record.record(["a" * 40]) == 2
    assert row_of(json.loads(path.read_text()))[0] == 2.0


def test_a_machine_keeps_its_facts(results):
    first = record.machine("m")
    assert set(first) == {"machine", "os", "arch", "cpu", "num_cpu", "ram"}
    recorded = {**first, "os": "another kernel", "version": 1}
    (results / "m" / "machine.json").write_text(json.dumps(recorded))
    assert record.machine("m")["os"] == "another kernel"
    assert record.machine()["machine"].endswith("-cores")


def test_machines_are_named_by_what_matters(tmp_path, monkeypatch):
    facts = "vendor_id : AuthenticAMD\ncpu family : {}\nmodel : 17\ncpu MHz : {}\n"
    facts += "model name : AMD EPYC\nflags : sse2 avx2{}\n"
    machines, info = record.machines, tmp_path / "cpuinfo"
    monkeypatch.setattr(machines, "CPUINFO", info)
    monkeypatch.setattr(machines, "data_caches", lambda: [(1, 1 << 15), (2, 1 << 20), (3, 1 << 25)])
    names = []
    for family, mhz, more in ((25, 2445.4, ""), (25, 2445.9, ""), (26, 2445.4, " avx512f")):
        info.write_text(facts.format(family, mhz, more))
        names.append(machines.name())
    cores = f"{os.cpu_count()}-cores"
    assert names[0] == names[1] == f"amd-25-17-avx2-l2-1024k-l3-32768k-{cores}"
    assert names[2] == f"amd-26-17-avx512-l2-1024k-l3-32768k-{cores}"


def repository(folder):
    """A repository of a package with one file, and its commit."""
    (folder / "shapejit").mkdir(parents=True)
    (folder / "shapejit" / "__init__.py").write_text("one = 1\n")
    record.git("init", "--quiet", "--initial-branch=main", cwd=folder)
    record.git("add", ".", cwd=folder)
    record.git(*AUTHOR, "commit", "--quiet", "--message", "one", cwd=folder)
    return record.commit_named("HEAD", folder)


def wrapper(path, folder):
    """A Python that finds the packages of a folder first."""
    path.write_text(f'#!/bin/sh\nPYTHONPATH={folder} exec {sys.executable} "$@"\n')
    path.chmod(0o755)
    return str(path)


def test_an_environment_has_the_commit_it_says(tmp_path, monkeypatch):
    folder = tmp_path / "repository"
    commit = repository(folder)
    monkeypatch.setattr("benchmarks.repository.ROOT", folder)
    python = wrapper(tmp_path / "python", folder)
    record.check_installed(python, commit)
    (folder / "shapejit" / "__init__.py").write_text("one = 2\n")
    with pytest.raises(record.RecordError, match=r"another shapejit/__init__\.py"):
        record.check_installed(python, commit)
    with pytest.raises(record.RecordError, match="No such file"):
        record.check_installed(str(tmp_path / "no-python"), commit)


def test_commits_that_are_missing(tmp_path, results, monkeypatch):
    folder = tmp_path / "repository"
    commit = repository(folder)
    monkeypatch.setattr("benchmarks.repository.ROOT", folder)
    assert record.missing("m") == [commit]
    python = "{}.{}".format(*sys.version_info)
    path = results / "m" / f"{commit[:8]}-virtualenv-py{python}.json"
    name = "bench.One.track_over_numpy"
    (results / "benchmarks.json").write_text(json.dumps({name: {"version": "1"}, "version": 2}))
    made = result(commit)
    made["results"][name][0] = None  # as of a commit that could not be built
    path.write_text(json.dumps(made))
    assert record.missing("m") == [commit]
    path.write_text(json.dumps(result(commit, version="0")))
    assert record.missing("m") == [commit]
    path.write_text(json.dumps(result(commit)))
    assert record.missing("m") == []
    (folder / "README.md").write_text("Nothing that is measured\n")
    record.git("add", ".", cwd=folder)
    record.git(*AUTHOR, "commit", "--quiet", "--message", "two", cwd=folder)
    assert record.missing("m") == []


def test_commits_that_another_machine_has_in_part(tmp_path, results, monkeypatch, capsys):
    folder = tmp_path / "repository"
    commit = repository(folder)
    monkeypatch.setattr("benchmarks.repository.ROOT", folder)
    python = "{}.{}".format(*sys.version_info)
    one, two = "bench.One.track_over_numpy", "bench.Two.track_over_numpy"
    known = {one: {"version": "1"}, two: {"version": "1"}, "version": 2}
    (results / "benchmarks.json").write_text(json.dumps(known))
    file = f"{commit[:8]}-virtualenv-py{python}.json"
    (results / "m" / file).write_text(json.dumps(result(commit)))
    assert record.incomplete("n") == []  # it is all that there is
    both = result("b" * 40)
    both["results"][two] = both["results"][one]
    (results / "m" / file.replace(commit[:8], "b" * 8)).write_text(json.dumps(both))
    assert record.main(["--incomplete", "--list", "--machine", "n"]) == 0
    assert capsys.readouterr().out.split() == [commit]
    assert record.incomplete("m") == []
    (results / "n").mkdir()
    (results / "n" / file).write_text(json.dumps({**both, "commit_hash": commit}))
    assert record.incomplete("n") == []


def test_asv_records_and_publishes(results, tmp_path, monkeypatch):
    """The whole way, of one counter, as in an environment that is there already."""
    config = json.loads((ROOT / "asv.conf.json").read_text())
    config |= {"repo": str(ROOT), "benchmark_dir": str(ROOT / "benchmarks")}
    config |= {"results_dir": str(results), "html_dir": str(tmp_path / "html")}
    config |= {"branches": ["HEAD"]}
    (tmp_path / "asv.conf.json").write_text(json.dumps(config))
    monkeypatch.setattr(record, "CONFIG", tmp_path / "asv.conf.json")
    monkeypatch.setattr(record, "check_installed", lambda python, commit: None)
    monkeypatch.setenv("HOME", str(tmp_path))
    commit = record.commit_named("HEAD")
    options = {"python": sys.executable, "bench": ["Copied"]}
    assert record.record([commit], "m", **options) == 0
    (path,) = (results / "m").glob(f"{commit[:8]}-*.json")
    assert json.loads(path.read_text())["results"]["counters.Copied.track_copies"][0] == [3]
    publish = [sys.executable, "-m", "asv", "publish", "--config", str(record.CONFIG)]
    subprocess.run(publish, cwd=tmp_path, check=True, stdout=subprocess.DEVNULL)
    assert list((tmp_path / "html" / "graphs").rglob("counters.Copied.track_copies.json"))


# Comparing


def measured_as(changes, noises):
    pairs = zip(changes, noises, strict=True)
    return [trials.Trial(log(c), log(1 + n), 2.0) for c, n in pairs]


ITEM = catalogue.Item("a.A", "x", "memcpy", turns=3)


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
    found = compare.verdict(ITEM, measured_as(changes, noises))
    assert found.slower is slower
    assert (found.benchmark, found.unit) == ("a.A(x)", "time / memcpy's")
    assert slower is (found.change > max(0.1, found.noise))
    assert found.second == pytest.approx(found.first * (1 + found.change))
    if slower:
        line = compare.text(compare.Found([found], [])).splitlines()[0]
        assert line.startswith("slower: a.A(x): 2 -> ")
        assert f"noise {found.noise:.0%}" in line
    inverse = compare.verdict(ITEM, measured_as([1 / c for c in changes], noises))
    assert inverse.faster is slower
    assert ("faster: a.A(x)" in compare.text(compare.Found([inverse], []))) is slower


def stages(monkeypatch, *changes):
    """A comparison whose stages find these changes; how many trials each had."""
    asked, found = [], iter(changes)

    def measured(chosen, pythons, times, fresh, tell):
        asked.append((times, fresh))
        change = next(found)
        return {item: measured_as([change] * times, [0.02] * times) for item in chosen}, {}

    monkeypatch.setattr(compare, "measured", measured)
    return compare.timed([ITEM], {}).verdicts[0].slower, asked


def test_what_seems_to_differ_is_looked_at_again(monkeypatch):
    few, more, many = compare.TRIALS
    assert stages(monkeypatch, 0.5, 1.0) == (False, [(few, False), (more, True)])
    assert stages(monkeypatch, 1.0) == (False, [(few, False)])
    assert stages(monkeypatch, 3.0, 1.0) == (False, [(few, False), (more, True)])
    assert stages(monkeypatch, 3.0, 1.5) == (True, [(few, False), (more, True)])
    # 15 % is not twice 10 %.
    once, again, last = (few, False), (more, True), (many, True)
    assert stages(monkeypatch, 1.15, 1.15, 1.15) == (True, [once, again, last])
    assert stages(monkeypatch, 1.15, 1.15, 1.0) == (False, [once, again, last])


def test_a_slower_function_is_found(tmp_path):
    """Processes for real, one of them with a resolver that does its work nine times."""
    (tmp_path / "sitecustomize.py").write_text(
        "import shapejit\nreal = shapejit.resolve\n"
        "shapejit.resolve = lambda *a: [real(*a) for _ in range(9)][0]\n"
    )
    slow = wrapper(tmp_path / "python", tmp_path)
    items = [catalogue.Item("resolver.Resolve", "onnx/resolve", "numpy", turns=4)]
    same = dict.fromkeys(trials.SIDES, sys.executable)
    (verdict,) = compare.timed(items, {**same, "second": slow}).verdicts
    assert verdict.slower
    assert verdict.change > 1
    found, hindered = trials.measured(items, same, 1, False, lambda item: None)
    assert found[items[0]][0].first > 0
    assert hindered == {}
    absent = catalogue.Item("resolver.Resolve", "no/such", "numpy", turns=1)
    found, hindered = trials.measured([absent], same, 1, False, lambda item: None)
    assert found == {}
    assert "the first commit lacks it: this shapejit has no no.request" in hindered[absent].reason
    assert not hindered[absent].fails


def test_what_cannot_be_imported_is_no_gap(tmp_path):
    """A package that is broken fails; it does not just lack what is measured."""
    (tmp_path / "shapejit").mkdir()
    (tmp_path / "shapejit" / "__init__.py").write_text("import no_such_module\n")
    broken = wrapper(tmp_path / "python", tmp_path)
    pythons = {**dict.fromkeys(trials.SIDES, sys.executable), "second": broken}
    item = catalogue.Item("resolver.Resolve", "onnx/resolve", "numpy", turns=1)
    found = compare.timed([item], pythons)
    assert found.verdicts == []
    assert "no_such_module" in found.fails[0].reason


def test_counters_count_exactly():
    items = [item for item in catalogue.items(["Copied"]) if item.method]
    pythons = dict.fromkeys(trials.SIDES, sys.executable)
    (found,) = compare.counted(items, pythons).verdicts
    assert (found.first, found.second, found.slower, found.unit) == (3, 3, False, "copies")


def test_what_is_left_and_why():
    good, bad, absent = {}, {"failed": "ValueError: x"}, {"missing": "cast"}

    def why(*replies):
        return trials.left(ITEM, dict(zip(trials.SIDES, replies, strict=True)))

    assert why(good, good, good) is None
    assert why(good, good, absent) == trials.Left(
        str(ITEM), "the second commit lacks it: cast", False
    )
    assert why(absent, absent, good).reason.startswith("the first commit lacks it")
    assert not why(bad, bad, bad).fails
    assert why(good, good, bad).fails
    lines = compare.text(compare.Found([], [why(good, good, bad)])).splitlines()
    assert lines[0] == "not compared: a.A(x): fails on the second commit: ValueError: x"


def test_a_process_that_ends_leaves_the_others(tmp_path):
    (tmp_path / "sitecustomize.py").write_text(
        "import os, shapejit\nshapejit.resolve = lambda *a: os._exit(3)\n"
    )
    ends = wrapper(tmp_path / "python", tmp_path)
    pythons = {**dict.fromkeys(trials.SIDES, sys.executable), "second": ends}
    items = [
        catalogue.Item("resolver.Resolve", f"onnx/{call}", "numpy", turns=1)
        for call in ("resolve", "request")
    ]
    found, hindered = trials.measured(items, pythons, 1, False, lambda item: None)
    assert hindered[items[0]].fails
    assert "its process has ended (3)" in hindered[items[0]].reason
    assert list(found) == items[1:]


def test_a_process_that_hangs_is_ended(tmp_path, monkeypatch):
    monkeypatch.setattr(trials.pipe, "TIMEOUT", 0.5)
    (tmp_path / "sitecustomize.py").write_text("import time\ntime.sleep(60)\n")
    side = trials.Side("second", wrapper(tmp_path / "python", tmp_path))
    assert "has ended" in side.ask(take="resolver.Resolve", case="onnx/resolve", ways=[])["failed"]
    side.close()


def test_the_worker_answers(capsys):
    held = {}
    package = "benchmarks"
    request = {"take": "resolver.Resolve", "case": "onnx/resolve", "ways": ["shapejit"]}
    assert worker.answer(package, request, held) == {}
    assert worker.answer(package, {"run": "shapejit", "calls": 3}, held)["seconds"] > 0
    assert worker.answer(package, {}, held) == {}
    assert held == {}


@pytest.mark.parametrize(("slower", "code"), [(True, 1), (False, 0)])
def test_exit_codes(monkeypatch, capsys, slower, code):
    one = compare.Verdict("a.A(x)", "time / memcpy's", 1.0, 1.5, 0.02, slower, False, 0.5)
    monkeypatch.setattr(compare, "compare", lambda *_, **__: compare.Found([one], []))
    assert compare.main(["HEAD", "HEAD"]) == code
    said = capsys.readouterr().out
    assert ("slower: a.A(x): 1 -> 1.5 time / memcpy's, +50%, noise 2%" in said) is slower
    assert compare.main(["HEAD", "HEAD", "--json"]) == code
    assert json.loads(capsys.readouterr().out)["verdicts"][0]["slower"] is slower


@pytest.mark.parametrize(("fails", "code"), [(True, 1), (False, 2)])
def test_nothing_compared_is_no_success(monkeypatch, capsys, fails, code):
    left = trials.Left("a.A(x)", "fails on one commit", fails)
    monkeypatch.setattr(compare, "compare", lambda *_, **__: compare.Found([], [left]))
    assert compare.main(["HEAD", "HEAD"]) == code
    assert "not compared: a.A(x)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("plant", "changes", "caught"),
    [
        ("half", [0.5], True),
        ("half", [0.02], False),
        ("half", [3.0], False),
        ("half", [], False),
        ("tenth", [0.1], True),
        ("tenth", [0.5], False),
        ("tenth", [0.02], False),
    ],
)
def test_what_was_planted_is_what_is_caught(plant, changes, caught):
    row = demonstration.PLANTS[plant]

    def verdict(name, change):
        marks = change > row.least, False
        return compare.Verdict(name, "time / memcpy's", 1.0, 1 + change, 0.02, *marks, change)

    verdicts = [verdict("operations.Ttc(x)", change) for change in changes]
    other = verdict("resolver.Resolve(x)", 0.1 if plant == "tenth" else 0.5)
    assert row.found(compare.Found([*verdicts, other], [])) is caught


@pytest.mark.parametrize(("longer", "caught"), [(1.0, True), (0.0, False), (4.0, False)])
def test_a_doubled_compile_time_is_caught(longer, caught):
    found = machine_code.Compared([], (), longer)
    assert demonstration.PLANTS["compile"].found(found) is caught


@pytest.mark.parametrize(("found", "alarms", "code"), [(True, 0, 0), (False, 0, 1), (True, 1, 1)])
def test_the_demonstration_ends_with(found, alarms, code, monkeypatch):
    one = compare.Verdict("a.A(x)", "", 1.0, 1.5, 0.02, bool(alarms), False, 0.5)
    monkeypatch.setattr(demonstration, "planted", lambda *_: (None, "same"))
    monkeypatch.setattr(demonstration, "caught", lambda names, *_: dict.fromkeys(names, found))
    monkeypatch.setattr(demonstration, "compare", lambda *_, **__: compare.Found([one], []))
    words = ["--plant", "half", "--times", "1"]
    assert demonstration.main(words) == code
    monkeypatch.setattr(demonstration, "compare", lambda *_, **__: compare.Found([], []))
    assert demonstration.main(words) == 2


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_what_breaks_is_not_slower(command, monkeypatch, capsys):
    """Python itself ends with 1."""

    def broken(**_):
        raise ZeroDivisionError

    monkeypatch.setattr(command.argparse, "ArgumentParser", broken)
    assert command.main([]) == 2
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_recording_ends_with(monkeypatch):
    monkeypatch.setattr(record, "machine_code", lambda commits: 0)
    for failed in (0, 1, 2):
        done = SimpleNamespace(returncode=failed)
        monkeypatch.setattr(record, "record", lambda *_, d=done: 2 if d.returncode else 0)
        assert record.main(["HEAD"]) == (2 if failed else 0)


@pytest.mark.parametrize(
    ("command", "words", "text"),
    [
        (compare, ["no-such-commit", "HEAD"], "names no commit"),
        (compare, ["HEAD", "HEAD", "--bench", "no such benchmark"], "no benchmark matches"),
        (compare, ["HEAD", "HEAD", "--bench", "("], "unterminated"),
        (record, ["no-such-commit"], "names no commit"),
        (record, ["--python", "/no/such/python", "HEAD"], "No such file"),
        (record, ["--python", sys.executable, "HEAD", "HEAD"], "name one"),
        (readme, ["--machine", "no-such-machine"], "no figures are recorded"),
        (demonstration, ["no-such-commit"], "names no commit"),
        (machine_code, ["no-such-commit", "HEAD"], "names no commit"),
        (machine_code, ["HEAD"], "name two commits"),
    ],
)
def test_bad_arguments(command, words, text, capsys):
    assert command.main(words) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c.__name__)
def test_every_command_says_what_it_does(command, capsys):
    with pytest.raises(SystemExit) as done:
        command.main(["--help"])
    assert done.value.code == 0
    assert command.__name__ in capsys.readouterr().out


def test_a_commit_that_cannot_be_installed(tmp_path):
    commit = repository(tmp_path / "repository")
    with pytest.raises(installs.InstallError, match="pip install"):
        installs.install(tmp_path / "repository", commit, tmp_path / "environment")


def test_slow_downs_are_planted(tmp_path):
    head = record.commit_named("HEAD")
    clone, same = demonstration.planted(tmp_path, head)
    assert record.git("diff", "--name-only", head, same, cwd=clone) == ""
    code = "from shapejit.kernels import tiles; assert tiles.tiles is not tiles._swift; "
    code += "from shapejit.kernels import jit; assert jit._Cache.load_overload is jit._begin"
    for name, plant in demonstration.PLANTS.items():
        slow = plant.commit(clone, same)
        assert record.git("diff", "--name-only", same, slow, cwd=clone) == plant.file
        with (clone / plant.file).open() as file:
            assert plant.added in file.read()
        if name == "tenth":
            tiles = (clone / plant.file).read_text()
    (clone / demonstration.PLANTS["tenth"].file).write_text(tiles)  # beside the last one
    subprocess.run([sys.executable, "-c", code], cwd=clone, check=True)
    slowed = {}
    added = demonstration.PLANTS["half"].added
    exec(added.replace("_swift = tiles", ""), slowed)
    slowed["_swift"] = lambda: time.sleep(0.02)
    start = time.perf_counter()
    slowed["tiles"]()
    assert time.perf_counter() - start > 0.03


# Other packages

CASES = """
package = "other"

[cases.work]
setup = "import other"
call = "other.work()"
nbytes = 1000

[cases.beside]
setup = "import other"
call = "other.work()"
baseline = "sum(range(100))"

[cases.new]
setup = "import other"
call = "other.new()"
nbytes = 1000
"""
WORK = "__version__ = '{0}'\ndef work():\n    sum(range({1}))\n"


@pytest.fixture(scope="module")
def places(tmp_path_factory):
    """Two versions of a package, the second of which is slower and has more; their cases."""
    folder = tmp_path_factory.mktemp("other")
    (folder / "cases.toml").write_text(CASES)
    for name, work, more in (("1.0", 300, ""), ("2.0", 3000, "new = work\n")):
        (folder / name).mkdir()
        (folder / name / "other.py").write_text(WORK.format(name, work) + more)
    return folder


def words_of(places, first, second, *more):
    words = ["--cases", str(places / "cases.toml"), *more]
    return [*words, "--package", str(places / first), "--package", str(places / second)]


@pytest.fixture
def brisk(monkeypatch):
    monkeypatch.setattr(compare, "TRIALS", (1, 1))
    monkeypatch.setattr(catalogue, "TURNS", 3)


def test_another_package_is_compared(places, brisk, capsys):
    assert compare.main(words_of(places, "1.0", "2.0")) == 1
    said = capsys.readouterr().out
    for text in ("slower: work: ", "slower: beside: ", "first: other 1.0", "second: other 2.0"):
        assert text in said
    assert "not compared: new: fails on the first commit: AttributeError" in said


def test_another_package_is_faster(places, brisk, capsys):
    assert compare.main(words_of(places, "2.0", "1.0", "--bench", "work", "--json")) == 0
    (verdict,) = json.loads(capsys.readouterr().out)["verdicts"]
    assert verdict["faster"]
    assert verdict["unit"] == "time / memmove's"


@pytest.mark.parametrize(
    ("second", "more", "text"),
    [
        ("", [], "has no other"),
        ("none", [], "is no Python"),
        ("2.0", ["--bench", "no such case"], "no benchmark matches"),
        ("2.0", ["--cases", "/no/such/file"], "No such file"),
    ],
)
def test_another_package_that_is_not_there(second, more, text, places, capsys):
    assert compare.main([*words_of(places, "1.0", second), *more]) == 2
    assert text in capsys.readouterr().err


@pytest.mark.parametrize(
    ("source", "text"),
    [
        ("", "wants package"),
        ('package = "other"\n[cases.a]\ncall = "1"', "either nbytes or baseline"),
        ('package = "other"\n[cases.a]\nnbytes = 1\nbaseline = "2"', "either nbytes or"),
        ('package = "other"\n[cases.a]\nnbytes = 1\ncall = "1"\ncal = "1"', "wants call"),
        ("[", "end of document"),
    ],
)
def test_files_of_cases_say_what_is_wrong(source, text, tmp_path):
    (tmp_path / "cases.toml").write_text(source)
    with pytest.raises(statements.MeasureError, match=text):
        statements.read(tmp_path / "cases.toml")


def test_the_example_runs():
    """Every case of the file that the documentation names, once."""
    path = ROOT / "benchmarks" / "numpy-cases.toml"
    found = statements.Statements(path)
    for name in found.cases:
        for way in found.ways(name).values():
            way()
    item = catalogue.statements(path, ["concatenate"])[0]
    assert (str(item), item.baseline) == ("concatenate", "baseline")


# Machine code

STORES = """    made = enumerate(_columns(builder, place, width, pieces))
"""
CROWDED = """    kind, each = ir.VectorType(llvm.I8, PIECE), PIECE // llvm.size(width)
    held = [llvm.load(builder, place(i), kind) for i in range(llvm.size(pieces) * each)]
    for k, column in enumerate(_columns(builder, place, width, pieces)):
        llvm.store(builder, column, builder.add(dst, llvm.entry(builder, columns, k)))
    builder.fence("seq_cst")  # or the columns would not be written at all
    for i, row in enumerate(held):
        place = builder.add(dst, llvm.entry(builder, columns, i % each))
        llvm.store(builder, row, llvm.at(builder, place, PIECE * (i // each)))
    made = enumerate(())
"""


def test_more_spills_in_a_tile_kernel_are_found(tmp_path):
    """A copy of the package whose tiles hold all rows until the columns are written."""
    shutil.copytree(ROOT / "shapejit", tmp_path / "shapejit")
    planted = tmp_path / "shapejit" / "kernels" / "vectors.py"
    source = planted.read_text()
    assert STORES in source
    planted.write_text(source.replace(STORES, CROWDED))
    case = ["TtcDtypes.*ttc-01/bfloat16"]
    first, second = machine_code.emitted(ROOT, tmp_path, isas=["avx2"], patterns=case)
    (kernel,) = first["avx2"]["kernels"]
    assert kernel == "tiles.tiles(uint16, uint16)"
    changes = machine_code.changes(first, second)
    assert [c.figure for c in changes if c.spilling] == ["spills"]
    assert {c.kernel for c in changes} == {kernel}
    assert changes[0].spilling  # they are told first
    assert not any(c.spilling for c in machine_code.changes(second, first))


LOOP_X86 = """
f:
\tvmovdqu\t(%rsi), %ymm0
.LBB0_1:
\tvmovdqu\t(%rsi,%rax), %ymm0
\tvmovdqu\t%ymm0, (%rdi,%rax)
\tvmovdqu\t%ymm0, 32(%rsp)                # 32-byte Spill
\tvpmovdw\t%ymm0, 64(%rdi)
\taddq\t$32, %rax
\tjne\t.LBB0_1
\tmovb\t$1, (%rdi)
"""
LOOP_ARM = """
.LBB0_1:                                // =>This Loop Header: Depth=1
.LBB0_2:
\tldp\tq0, q1, [x0], #32
\tstp\tq0, q1, [x1], #32
\tst1\t{ v0.h }[0], [x2]
\tsub\tx3, x3, #1
\tcbnz\tx3, .LBB0_2
\tstr\tq0, [x1, #4]
\tb.ne\t.LBB0_1
"""


def test_the_main_loop_of_a_kernel():
    found = main_loops.main_loop(LOOP_X86, arm=False)
    assert found == {"loop instructions": 6, "loop bytes": 32 + 16}
    found = main_loops.main_loop(LOOP_ARM, arm=True)
    assert found == {"loop instructions": 5, "loop bytes": 32 + 2}


def test_what_has_more_instructions_on_arm_has_a_line_that_says_why():
    kernels = json.loads(processors.RECORD.read_text())["kernels"]
    assert len(kernels) > 15
    assert processors.unexplained(kernels) == []
    for begin in processors.WHY:
        assert any(name.startswith(begin) for name in kernels), begin


def figures_of(spills, isa="neon", name="tiles.tiles(uint16, uint8)"):
    row = {**dict.fromkeys(emission.COLUMNS, 7), "spills": spills, "compile seconds": spills}
    versions = {"llvmlite": "1", "numba": "1"}
    return {isa: {"kernels": {name: row}, "failed": {}, "versions": versions}}


@pytest.mark.parametrize(("before", "after", "code"), [(1, 1, 0), (2, 1, 0), (1, 2, 1)])
def test_machine_code_ends_with(before, after, code, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine_code, "FOLDER", tmp_path)
    commits = [record.commit_named(name) for name in ("HEAD~1", "HEAD")]
    for commit, spills in zip(commits, (before, after), strict=True):
        monkeypatch.setattr(machine_code, "emitted_of", lambda _, n=spills: [figures_of(n)])
        assert machine_code.main(["--record", commit]) == 0
        assert machine_code.recorded(commit) == figures_of(spills)
    assert machine_code.main(["HEAD~1", "HEAD"]) == code
    said = capsys.readouterr().out
    assert ("MORE SPILLS IN A TILE KERNEL: neon tiles.tiles" in said) is bool(code)
    one = compare.Verdict("a.A(x)", "", 1.0, 1.0, 0.02, False, False, 0.0)
    monkeypatch.setattr(compare, "compare", lambda *_, **__: compare.Found([one], []))
    assert compare.main(["HEAD~1", "HEAD"]) == code


@pytest.mark.parametrize(("seconds", "code"), [(1.1, 0), (2.0, 1)])
def test_longer_to_compile(seconds, code, monkeypatch, capsys):
    made = figures_of(1), figures_of(1)
    made[1]["neon"]["kernels"]["tiles.tiles(uint16, uint8)"]["compile seconds"] = seconds
    monkeypatch.setattr(machine_code, "emitted_of", lambda *commits, **options: made)
    assert machine_code.main(["HEAD", "HEAD", "--again"]) == code
    said = capsys.readouterr().out
    assert ("LONGER TO COMPILE: +100%" in said) is bool(code)
    assert machine_code.compared(*made).longer is None  # recorded at other times


def test_machine_code_that_cannot_be_compiled(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(machine_code, "ISAS", ["sse2"])
    repository(tmp_path / "repository")
    words = ["HEAD", "HEAD", "--repository", str(tmp_path / "repository")]
    assert machine_code.main(words) == 2
    assert "error" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("line", "arm", "figures"),
    [
        ("\tvmovdqu64\t(%rdi,%rax), %zmm3", False, {"vector instructions", "loads"}),
        ("\tvmovups\t%ymm0, 32(%rsp)                 # 32-byte Spill", False,
         {"vector instructions", "stores", "spills"}),
        ("\taddq\t16(%rsp), %rax                  # 8-byte Folded Reload", False,
         {"loads", "reloads"}),
        ("\tcmpq\t$0, (%rdi)", False, {"loads"}),
        ("\tvmovdqu8\t%zmm1, (%rdi) {%k1}", False, {"vector instructions", "stores"}),
        ("\tleaq\t(%rdi,%rax), %rdx", False, set()),
        ("\tldr\tq0, [x1, #16]", True, {"vector instructions", "loads"}),
        ("\tstr\tx8, [sp, #24]                   // 8-byte Spill", True, {"stores", "spills"}),
        ("\tadd\tx0, x1, #8", True, set()),
        (".LBB0_1:", False, None),
        ("\t.p2align\t4", False, None),
    ],
)  # fmt: skip
def test_what_is_counted_of_an_instruction(line, arm, figures):
    found = emission.counted(line, arm)
    wanted = set() if figures is None else {"instructions", *figures}
    assert {name for name, count in found.items() if count} == wanted


# What is recorded


@pytest.mark.parametrize(("suites", "chosen"), [(["ttc"], "a"), (["ttc", "views"], "b")])
def test_figures_are_of_the_last_machine_that_has_all_suites(suites, chosen, monkeypatch, tmp_path):
    of = {"a": (["ttc", "views"], 1), "b": (suites, 2)}
    for name, (kept, when) in of.items():
        figures_of_it = {"recorded": when, "suites": dict.fromkeys(kept), "machine": name}
        (tmp_path / f"{name}.json").write_text(json.dumps(figures_of_it))
    monkeypatch.setattr(figures, "FIGURES", tmp_path)
    assert figures.recorded()["machine"] == chosen


def test_what_readmes_say_of_speed_is_written_from_what_is_recorded():
    for name, text in readme.files(figures.recorded()).items():
        assert (ROOT / name).read_text() == text, f"{name}: run python -m benchmarks.readme"


def test_lines_that_are_not_recorded_are_left_out():
    taken = {"shapejit": 1.0, "memcpy": 0.5, "numpy": 12.4, "torch": 2.5}
    row = {"name": "weight-transposed-4096x14336-10", "dtype": "bfloat16", "seconds": taken}
    machine = {"cpu": "<C>"}
    found = {"suites": {"workloads": {"machine": machine, "rows": [row]}}}
    (*_, line) = lines.table(found).splitlines()
    assert line.endswith("| `np.ascontiguousarray(w.T)` | `sj.ascontiguous(w.T)` | 12 | 2.5 |")
    del taken["torch"]
    assert lines.table(found).splitlines()[-1].endswith("| 12 |")
    assert picture.bars(found) == [("transpose a bfloat16 weight", 0.5, 0.5 / 12.4)]
    drawn = ElementTree.fromstring(picture.svg(found, "dark"))
    assert [part.text for part in drawn.iter() if part.text and "C" in part.text] == ["<C>"]


def test_every_line_is_recorded_under_its_name():
    found = figures.recorded()
    assert all(lines.seconds(found, line) for line in lines.LINES)


def test_the_table():
    machine = {"cpu": "C", "architecture": "a", "threads": 2, "numpy": "2", "numba": "0"}
    part = {"cases": 3, "geometric_mean": 1.5, "worst": 2.5}
    measures = ("over_memcpy", "times_faster_than_numpy", "times_faster_than_torch")
    found = {
        "suites": {
            "ttc": {
                "machine": {**machine, "peers": {"torch": "9"}},
                "commit": "0123456789",
                "settings": {"quick": False, "size": 1.0},
                "summary": [{"dtype": "all", "measure": m, **part} for m in measures],
            }
        }
    }
    call = {"warm_beyond": 0.05, "cold": 3.0, "cold_trivial": 1.0}
    goal = {"way": "memcpy", "kind": "at most", "limit": 1.7, "ratio": 1.25}
    many = {"name": "map", "seconds": {"shapejit": 0.005}, "goals": [goal]}
    rows = {
        name: {**found["suites"]["ttc"], "summary": [], "rows": [row]}
        for name, row in (("first-call", call), ("batch", many))
    }
    text = readme.table({"suites": {**found["suites"], **rows}})
    assert "costs 0.05 s beyond" in text
    assert "2.0 to 2.0 s" in text
    assert "5 ms  1.25 x the time of memcpy" in text
    lines = readme.table(found).splitlines()
    assert "01234567" in lines[0]
    assert lines[-2].split() == ["ttc", "3", "1.50", "2.50", "1.5x", "1.5x"]
    with pytest.raises(record.RecordError, match="has no"):
        readme.written("README.md", "no markers", found)


def test_figures_are_kept_suite_by_suite(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "FIGURES", tmp_path / "figures")
    real = figures.git
    monkeypatch.setattr(figures, "git", lambda *w: "" if w[0] == "status" else real(*w))
    options = ["--quick", "--rounds", "1", "--peer", "none", "--machine", "m"]
    assert figures.main(["--suite", "small", *options]) == 0
    assert figures.main(["--suite", "tiny-dims", "--size", "1e-6", *options]) == 0
    found = figures.recorded("m")
    assert list(found["suites"]) == ["small", "tiny-dims"]
    assert found["suites"]["small"]["rows"][0]["seconds"]["numpy"] > 0
    assert "(part of the cases)" in readme.table(found)


@pytest.fixture
def tiny(monkeypatch, tmp_path):
    """Thresholds at a part of their sizes, one turn each, with files of their own."""
    monkeypatch.setattr(thresholds, "SCALES", (1 / 16,))
    monkeypatch.setattr(thresholds, "TURNS", 1)
    monkeypatch.setattr(thresholds, "SECONDS", 0)
    monkeypatch.setattr(thresholds, "MEASURED", tmp_path)
    return tmp_path / "m.json"


def test_every_threshold_is_measured(tiny, capsys):
    before = [each.value for each in thresholds.THRESHOLDS]
    assert thresholds.main(["--record", "--machine", "m"]) in (0, 1)
    assert [each.value for each in thresholds.THRESHOLDS] == before
    recorded = json.loads(tiny.read_text())["thresholds"]
    shown = capsys.readouterr().out
    for each in thresholds.THRESHOLDS:
        assert f"{each.module}.{each.name} = " in shown
        rows = recorded[each.name]["rows"]
        assert len({row["case"] for row in rows}) == len(each.cases)
        assert all(isfinite(row["cost"]) and min(row["seconds"].values()) > 0 for row in rows)


@pytest.mark.parametrize(
    ("seconds", "code"), [((1.3, 1, 1.3), 1), ((1, 1, 1.3), 0), ((1.05, 1.05, 1), 0)]
)
def test_a_threshold_costs_what_the_better_side_saves(seconds, code, tiny, monkeypatch):
    sides = dict(zip(("taken", "below", "above"), seconds, strict=True))
    monkeypatch.setattr(thresholds, "SCALES", (1,))
    monkeypatch.setattr(thresholds, "seconds", lambda way, _: sides)
    assert thresholds.main(["--only", "^FEW_ELEMENTS$", "--machine", "m"]) == code


def test_thresholds_that_cannot_be_measured(tiny):
    assert thresholds.main(["--only", "none of them", "--machine", "m"]) == 2
    assert thresholds.main(["--only", "FEW", "--record", "--machine", "m"]) == 2
    assert not tiny.exists()
