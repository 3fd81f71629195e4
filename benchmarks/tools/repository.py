"""The repository whose commits are measured, and what git reports about it."""

import io
import subprocess
import zipfile
from contextlib import suppress
from pathlib import Path

from .exits import MeasureError

ROOT = Path(__file__).resolve().parents[2]
RESULTS = ROOT / "benchmarks" / "results"
# A commit that changes none of these is measured by its parent.
MEASURED = ("shapejit", "pyproject.toml")


class RecordError(MeasureError):
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


def main_branch():
    """The branch whose history is kept; where a clone has none, what is checked out."""
    for name in ("main", "origin/main"):
        with suppress(RecordError):
            return commit_named(name)
    return "HEAD"


def positions():
    """The position of each commit in the history; nothing where there is no git."""
    try:
        commits = git("rev-list", "--reverse", "--topo-order", "HEAD").split()
    except (RecordError, OSError):
        return {}
    return {commit: k for k, commit in enumerate(commits)}


def extract(commit, folder, repository=None):
    """The folder, with the sources of the package at a commit in it."""
    command = ["git", "archive", "--format=zip", commit, "shapejit"]
    done = subprocess.run(command, cwd=repository or ROOT, capture_output=True, check=False)
    if done.returncode:
        raise RecordError(done.stderr.decode().strip())
    with zipfile.ZipFile(io.BytesIO(done.stdout)) as archive:
        archive.extractall(folder)
    return str(folder)
