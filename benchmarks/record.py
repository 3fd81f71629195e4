"""Add commits to the recorded history: asv runs them, one curve whichever Python did.

asv names an existing environment, and a curve, by the path of its Python. What
is written here says which version of Python it was, as asv's own virtual
environments do, so that a new clone or another path carries the curve on.
"""

import argparse
import json
import os
import platform
import re
import subprocess
import sys
import tempfile
from hashlib import sha1
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CONFIG = ROOT / "asv.conf.json"
RESULTS = ROOT / "benchmarks" / "results"
# A commit that changes none of these is measured by its parent.
MEASURED = ("shapejit", "pyproject.toml")


class RecordError(ValueError):
    """Bad arguments, or an environment that is not what it is said to be."""


def git(*words, cwd=None):
    """What git prints, of this clone if of no other."""
    command = ["git", *words]
    done = subprocess.run(command, cwd=cwd or ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RecordError(done.stderr.strip() or f"git {' '.join(words)} failed")
    return done.stdout.strip()


def commit_named(name, cwd=None):
    """The full hash."""
    try:
        return git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}", cwd=cwd)
    except RecordError:
        raise RecordError(f"{name!r} names no commit") from None


def machine(name=None):
    """The facts asv stores of a machine; those recorded for its name, if there are any.

    The name says what it is, so that another machine of the kind has the same
    curves; facts that change with an update of the system are left out.
    """
    cpu, cores = _cpu(), str(os.cpu_count())
    if name is None:
        name = re.sub(r"[^a-z0-9]+", "-", f"{cpu} {cores} cores".lower()).strip("-")
    known = RESULTS / name / "machine.json"
    if known.is_file():
        facts = json.loads(known.read_text())
        facts.pop("version", None)
        return facts
    arch, system = platform.machine(), platform.system()
    return {"machine": name, "os": system, "arch": arch, "cpu": cpu, "num_cpu": cores, "ram": ""}


def _cpu():
    try:
        found = re.search(r"^model name\s*: *(.+)$", Path("/proc/cpuinfo").read_text(), re.M)
    except OSError:
        found = None
    return found[1] if found else platform.processor() or platform.machine()


def missing(name):
    """The commits of main, oldest first, of which this machine has no results."""
    have = {path.name.split("-")[0] for path in (RESULTS / name).glob("*-*.json")}
    commits = git("rev-list", "--reverse", "main", "--", *MEASURED).split()
    return [commit for commit in commits if commit[:8] not in have]


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


def settle(facts):
    """Name what an existing environment recorded by its Python's version; merge it."""
    for path in sorted((RESULTS / facts["machine"]).glob("*-existing-*.json")):
        found = json.loads(path.read_text())
        if not os.path.exists(found["python"]):
            continue  # of another clone: whoever recorded it has the Python to ask
        version = subprocess.check_output(
            [found["python"], "-c", "import sys; print('%d.%d' % sys.version_info[:2])"], text=True
        ).strip()
        name = f"virtualenv-py{version}"
        target = path.with_name(f"{found['commit_hash'][:8]}-{name}.json")
        found.update(env_name=name, python=version, params={**facts, "python": version})
        if target.is_file():
            earlier = json.loads(target.read_text())
            found["results"] = {**earlier["results"], **found["results"]}
            found["durations"] = {**earlier["durations"], **found["durations"]}
        target.write_text(json.dumps(found))
        path.unlink()


def record(commits, name=None, python=None, bench=()):
    """Run asv for the commits; returns its exit code, 2 where a benchmark failed."""
    from asv.machine import MachineCollection

    load = os.getloadavg()[0]
    if load > 0.5:
        print(f"record: load average {load:.1f}: other programs will be measured", file=sys.stderr)
    facts = machine(name)
    MachineCollection.save(facts["machine"], facts)
    words = ["run", "--config", str(CONFIG), "--machine", facts["machine"], "--show-stderr"]
    words += [word for regex in bench for word in ("--bench", regex)]
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
            done = subprocess.run(
                command, cwd=ROOT, env=environment, input=commit + "\n", text=True, check=False
            )
            code = max(code, done.returncode)
            settle(facts)
    return code


def main(argv=None):
    """0 done, 1 or 2 where asv or a benchmark of it failed, 2 for bad arguments."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.record", description=__doc__)
    parser.add_argument("commits", nargs="*", metavar="COMMIT", help="HEAD if there is none")
    parser.add_argument(
        "--missing",
        action="store_true",
        help="all commits of main that changed what is measured and are not recorded yet",
    )
    parser.add_argument("--machine", metavar="NAME", help="if not by its processor and cores")
    parser.add_argument(
        "--python", metavar="PATH", help="a Python that has the commit installed; none is made"
    )
    parser.add_argument("--bench", action="append", default=[], metavar="REGEX")
    args = parser.parse_args(argv)
    try:
        commits = [commit_named(name) for name in args.commits]
        if args.missing:
            commits += missing(machine(args.machine)["machine"])
        elif not commits:
            commits = [commit_named("HEAD")]
        if args.python is not None and len(commits) != 1:
            raise RecordError("--python has one commit installed: name one")
        return record(commits, args.machine, args.python, args.bench)
    except ModuleNotFoundError as fault:
        print(f"record: error: no {fault.name}: pip install -e '.[bench]'", file=sys.stderr)
        return 2
    except RecordError as fault:
        print(f"record: error: {fault}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
