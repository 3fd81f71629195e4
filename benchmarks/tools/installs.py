"""Commits installed into fresh virtual environments, side by side."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

from .exits import MeasureError


class InstallError(MeasureError):
    """A commit that cannot be installed."""


class Place(NamedTuple):
    """A Python, a folder that it imports from before all others, and names that are ablated."""

    python: str
    folder: str = ""
    ablated: dict | None = None


def install(repository, commit, folder):
    """The Python of a new environment in `folder` with that commit installed; used again."""
    folder = Path(folder)
    python, done = folder / "venv" / "bin" / "python", folder / "installed"
    if done.is_file() and done.read_text() == commit:
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", "--without-pip", str(folder / "venv")])
    source = f"git+{Path(repository).resolve().as_uri()}@{commit}"
    _run([*_pip(python), "install", "--quiet", source])
    done.write_text(commit)
    return str(python)


def differing(*pythons):
    """What both environments have, beside the package, in other versions."""
    first, second = map(_versions, pythons)
    both = [name for name in first if name in second and name != "shapejit"]
    return [name for name in both if first[name] != second[name]]


def _versions(python):
    listed = _run([*_pip(python), "list", "--format", "json"])
    return {p["name"]: p["version"] for p in json.loads(listed)}


def _pip(python):
    """The pip of this environment, at work in that of another Python."""
    return [sys.executable, "-m", "pip", "--disable-pip-version-check", "--python", str(python)]


def _run(command):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(command)}: {done.stderr.strip()[-2000:]}")
    return done.stdout
