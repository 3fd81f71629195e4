"""Add commits to the recorded history: asv runs them, one curve whichever Python did.

asv names an existing environment, and a curve, by the path of its Python. What
is written here says which version of Python it was, as asv's own virtual
environments do, so that a new clone or another path carries the curve on.
"""

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
from hashlib import sha1
from pathlib import Path

from .exits import SAME, UNKNOWN, ending
from .machine_code import keep, recorded
from .repository import MEASURED, RESULTS, ROOT, RecordError, commit_named, git, main_branch, places
from .tables import machine as machines

CONFIG = ROOT / "asv.conf.json"


def machine(name=None):
    """The facts asv stores of a machine; those recorded for its name, if there are any.

    The name says what it is, so that another machine of the kind has the same
    curves, and no other; facts that change with an update of the system are left out.
    """
    cpu, cores = machines.processor(), str(os.cpu_count())
    if name is None:
        name = machines.name()
    known = RESULTS / name / "machine.json"
    if known.is_file():
        facts = json.loads(known.read_text())
        facts.pop("version", None)
        return facts
    arch, system = platform.machine(), platform.system()
    return {"machine": name, "os": system, "arch": arch, "cpu": cpu, "num_cpu": cores, "ram": ""}


def missing(name):
    """The commits of main, oldest first, of which this machine lacks results of a benchmark.

    Results of another version of the benchmark, or of another Python, are none.
    """
    have = _complete(name, _wanted())
    commits = git("rev-list", "--reverse", main_branch(), "--", *MEASURED).split()
    return [commit for commit in commits if commit[:8] not in have]


def incomplete(name):
    """The commits, oldest first, of which another machine has a part and this one not all.

    A part: some benchmarks are not there that the machine has of other commits.
    """
    order, commits = places(), set()
    for folder in RESULTS.iterdir():
        if folder.is_dir() and folder.name != name:
            found = [_stored(path) for path in folder.glob("*-virtualenv-*.json")]
            most = set().union(*(one["results"] for one in found))
            commits |= {one["commit_hash"] for one in found if most - one["results"].keys()}
    own = _complete(name, _wanted())
    return sorted((c for c in commits & order.keys() if c[:8] not in own), key=order.get)


def _wanted():
    """{benchmark: version} of all that is recorded."""
    known = _stored(RESULTS / "benchmarks.json")
    return {key: one["version"] for key, one in known.items() if isinstance(one, dict)}


def _complete(name, wanted):
    """The commits, abbreviated, of which a machine has results of all benchmarks."""
    return {
        path.name.split("-")[0]
        for path in (RESULTS / name).glob(f"*-{_environment(sys.version_info)}.json")
        if _holds(_stored(path), wanted)
    }


def _environment(version):
    """The name of asv's own environment."""
    return f"virtualenv-py{version[0]}.{version[1]}"


def _stored(path):
    return json.loads(path.read_text()) if path.is_file() else {}


def _rows(found):
    """{benchmark: {column: value}} of a results file."""
    columns = found.get("result_columns", ())
    return {k: dict(zip(columns, row, strict=False)) for k, row in found.get("results", {}).items()}


def _holds(found, wanted):
    """Whether all benchmarks have run: n/a is a result (NaN), a failure is none (null)."""
    rows = _rows(found)
    return bool(rows) and all(
        key in rows
        and rows[key].get("version") == version
        and None not in (rows[key]["result"] or [None])
        for key, version in wanted.items()
    )


def check_installed(python, commit):
    """Refuse a Python whose shapejit is not, file by file, that of the commit."""
    where = "import os, shapejit; print(os.path.dirname(os.path.abspath(shapejit.__file__)))"
    command = [python, "-c", where]
    try:
        done = subprocess.run(command, cwd=os.sep, capture_output=True, text=True, check=False)
    except OSError as fault:
        raise RecordError(f"{python}: {fault.strerror}") from None
    if done.returncode:
        raise RecordError(f"{python} cannot import shapejit: {done.stderr.strip()}")
    folder = Path(done.stdout.strip())
    for line in git("ls-tree", "-r", commit, "--", "shapejit").splitlines():
        facts, path = line.split("\t")
        installed = folder.parent / path
        data = installed.read_bytes() if installed.is_file() else b""
        if sha1(b"blob %d\0" % len(data) + data).hexdigest() != facts.split()[2]:
            raise RecordError(f"{python} has another {path} than commit {commit[:8]}")


def merge_existing(facts, before=None):
    """Name what an existing environment recorded by its Python's version; merge it.

    `before` is what files held before asv wrote them: what a case once measured is
    not lost to a failure, nor to a run of other cases.
    """
    folder = RESULTS / facts["machine"]
    for path in sorted(folder.glob("*-existing-*.json")):
        found = json.loads(path.read_text())
        if not os.path.exists(found["python"]):
            continue  # of another clone: whoever recorded it has the Python to ask
        version = subprocess.check_output(
            [found["python"], "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
        ).strip()
        name = _environment(version.split("."))
        target = path.with_name(f"{found['commit_hash'][:8]}-{name}.json")
        found.update(env_name=name, python=version, params={**facts, "python": version})
        _write(target, merged(_stored(target), found))
        path.unlink()
    for path, earlier in (before or {}).items():
        now = _stored(path)
        if now != earlier:
            _write(path, merged(earlier, now))


def _write(path, found):
    """Whole or not at all."""
    part = path.with_suffix(".part")
    part.write_text(json.dumps(found))
    part.replace(path)


def merged(earlier, found):
    """Both results files as one: of each case what was measured later, if it was measured."""
    if not earlier:
        return found
    if not found:
        return earlier
    old, new = _rows(earlier), _rows(found)
    columns = list(dict.fromkeys([*earlier["result_columns"], *found["result_columns"]]))
    results = {}
    for key in {**old, **new}:
        row = _merged(old[key], new[key]) if key in old and key in new else {**old, **new}[key]
        results[key] = [row.get(column) for column in columns]
    durations = {**earlier.get("durations", {}), **found.get("durations", {})}
    return {**found, "result_columns": columns, "results": results, "durations": durations}


def _merged(old, new):
    if (new.get("started_at") or 0) < (old.get("started_at") or 0):
        old, new = new, old
    if any(old.get(key) != new.get(key) for key in ("version", "params")):
        return new
    taken = [_measured(value) for value in new["result"] or ()]
    if not any(taken):
        return old if any(map(_measured, old["result"] or ())) else new
    kept = dict(new)
    for column, values in new.items():
        before = old.get(column)
        lists = isinstance(values, list) and isinstance(before, list)
        if column != "params" and lists and len(values) == len(before) == len(taken):
            pairs = zip(taken, values, before, strict=True)
            kept[column] = [value if now else then for now, value, then in pairs]
    return kept


def _measured(value):
    return value is not None and value == value  # NaN differs from itself


def record(commits, name=None, python=None, bench=(), lacking=False):
    """Run asv for the commits; returns 0, or 2 where it or a benchmark of it failed.

    `lacking`: only the benchmarks of which a commit has no results.
    """
    from asv.machine import MachineCollection

    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"record: load average {load:.1f}: other programs will be measured", file=sys.stderr)
    facts = machine(name)
    MachineCollection.save(facts["machine"], facts)
    words = ["run", "--config", str(CONFIG), "--machine", facts["machine"], "--show-stderr"]
    words += [word for regex in bench for word in ("--bench", regex)]
    words += ["--skip-existing-successful"] * lacking
    if python is not None:
        (commit,) = commits
        check_installed(python, commit)
        words += ["--environment", f"existing:{python}", "--set-commit-hash", commit]
    else:
        words += ["--environment", "virtualenv", "HASHFILE:-"]
    # Kernels are compiled anew for each commit, wherever its package lies.
    with tempfile.TemporaryDirectory(prefix="shapejit-numba-") as cache:
        code = 0
        for commit in commits:
            environment = {**os.environ, "NUMBA_CACHE_DIR": os.path.join(cache, commit)}
            command = [sys.executable, "-m", "asv", *words]
            files = (RESULTS / facts["machine"]).glob(f"{commit[:8]}-*.json")
            before = {path: _stored(path) for path in files if "-existing-" not in path.name}
            done = subprocess.run(
                command, cwd=ROOT, env=environment, input=commit + "\n", text=True, check=False
            )
            code = UNKNOWN if done.returncode else code
            merge_existing(facts, before)
    return code


def machine_code(commits):
    """Record the figures that belong to no machine and have no noise, where they are not yet."""
    return keep([commit for commit in commits if recorded(commit) is None])


@ending
def main(argv=None):
    """0 recorded; 2 bad arguments, or something that could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record", description=__doc__)
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="HEAD if there is none")
    parser.add_argument(
        "--missing",
        action="store_true",
        help="all commits of main that changed what is measured and are not recorded yet",
    )
    parser.add_argument(
        "--incomplete",
        action="store_true",
        help="those of which another machine has only a part: all of it, on this one",
    )
    parser.add_argument("--list", action="store_true", help="only say which commits these are")
    parser.add_argument("--machine", metavar="NAME", help="if not by its processor and cores")
    parser.add_argument(
        "--python", metavar="PATH", help="a Python that has the commit installed; none is made"
    )
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX")
    args = parser.parse_args(argv)
    commits = [commit_named(name) for name in args.commits]
    if args.missing:
        commits += missing(machine(args.machine)["machine"])
    if args.incomplete:
        commits += incomplete(machine(args.machine)["machine"])
    if not (commits or args.missing or args.incomplete):
        commits = [commit_named("HEAD")]
    if args.list:
        print(*commits, sep="\n")
        return SAME
    if args.python is not None and len(commits) != 1:
        raise RecordError("--python has one commit installed: name one")
    lacking = args.missing or args.incomplete
    code = record(commits, args.machine, args.python, args.bench, lacking)
    return code if args.bench else max(code, machine_code(commits))


if __name__ == "__main__":
    sys.exit(main())
