"""Files of tests, each run by a process of its own; the results of the last runs."""

import json
import subprocess
from collections import Counter
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path

from . import journal
from .environment import FOLDER, PYTHON, REPOSITORY, variables
from .journal import Report

TESTS = REPOSITORY / "tests"
RESULTS = Path(__file__).with_name("results.json")
PATIENCE = 2 * 3600  # seconds that a test may take
FILES = (
    *("test_casts.py", "test_kernels.py", "test_packed.py", "test_schemes.py", "test_program.py"),
    *("test_lookups.py", "test_program_casts.py", "test_repacking.py", "test_mixed_blocks.py"),
    *("test_boxes.py", "test_columns.py", "test_batch.py", "test_joins.py", "test_equality.py"),
    *("test_gathering.py", "test_padding.py", "test_ops.py", "test_cpu_caches.py"),
    *("test_result_memory.py", "test_onnx_casts.py", "test_numpy_suite.py"),
)


def run(name, processor):
    """Run the tests of a file that have not ended yet; write what came of all of them."""
    commit = _git("rev-parse", "--short=10", "HEAD")
    if _git("status", "--porcelain", "--", "shapejit", "tests/*.py"):
        raise SystemExit("what is tested must be committed: the results name the commit")
    sources = _git("rev-parse", "HEAD:shapejit", f"HEAD:tests/{name}")
    version = sha256(sources.encode()).hexdigest()[:12]
    path = FOLDER / "journals" / processor / f"{name}-{version}"
    path.parent.mkdir(parents=True, exist_ok=True)
    complete = False
    try:
        while _run(name, path, processor):
            pass
        complete = True
    finally:
        _write(processor, name, commit, journal.read(path), complete)


def _run(name, path, processor):
    """Run pytest once; whether tests are left, since one of them ended the process."""
    command = ["nice", "-n", "19", PYTHON, "-m", "pytest", "-q", "-p", "arm64.journal"]
    environment = variables(processor) | {journal.VARIABLE: str(path)}
    with path.with_suffix(".log").open("a") as log:
        process = subprocess.Popen(
            [*command, f"tests/{name}"], cwd=REPOSITORY, env=environment,
            stdin=subprocess.DEVNULL, stdout=log, stderr=log,
        )  # fmt: skip
        try:
            while process.poll() is None:
                try:
                    process.wait(60)
                except subprocess.TimeoutExpired:
                    if path.exists() and _age(path) > PATIENCE:
                        process.kill()
        finally:
            process.kill()
    reports = journal.read(path)
    last = [*reports.values()][-1:]
    if last and not journal.has_ended(last[0]):
        text = f"the process ended with {process.returncode}"
        journal.add(path, Report(last[0][0].test, "teardown", "failed", 0.0, text))
        return True
    if process.returncode not in (0, 1, 5):  # all passed, some failed, none were left
        text = path.with_suffix(".log").read_text()[-5000:]
        journal.add(path, Report(f"tests/{name}", "teardown", "failed", 0.0, text))
    return False


def _age(path):
    return datetime.now().timestamp() - path.stat().st_mtime


def _write(processor, name, commit, tests, complete):
    tests = {test: reports for test, reports in tests.items() if journal.has_ended(reports)}
    outcomes = {test: {report.outcome for report in reports} for test, reports in tests.items()}
    failures = sorted(test for test, found in outcomes.items() if "failed" in found)
    counts = Counter(
        "failed" if "failed" in found else "skipped" if "skipped" in found else "passed"
        for found in outcomes.values()
    )
    seconds = sum(report.seconds for reports in tests.values() for report in reports)
    all_results = results()
    all_results.setdefault(processor, {})[name] = {
        "date": f"{datetime.now(UTC):%Y-%m-%d}",
        "commit": commit,
        **{outcome: counts[outcome] for outcome in ("passed", "failed", "skipped")},
        "seconds": round(seconds),
        **({} if complete else {"complete": False}),
        **({"failures": failures} if failures else {}),
    }
    RESULTS.write_text(json.dumps(all_results, indent=1) + "\n")


def results():
    """{processor: {file: what came of its tests}}."""
    return json.loads(RESULTS.read_text()) if RESULTS.exists() else {}


def _git(*arguments):
    command = ("git", "-C", REPOSITORY, *arguments)
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
