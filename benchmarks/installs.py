"""Commits installed into fresh virtual environments, side by side."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path


class InstallError(ValueError):
    """A commit that cannot be installed."""


def install(repository, commit, folder):
    """The Python of a new environment in `folder` with that commit's shapejit; used again."""
    folder = Path(folder)
    python, done = folder / "venv" / "bin" / "python", folder / "installed"
    if done.is_file() and done.read_text() == commit:
        return str(python)
    shutil.rmtree(folder, ignore_errors=True)
    _run([sys.executable, "-m", "venv", str(folder / "venv")])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, f"git+{Path(repository).resolve().as_uri()}@{commit}"])
    done.write_text(commit)
    return str(python)


def differing(*pythons):
    """What both environments have, beside shapejit, in other versions."""
    first, second = map(_versions, pythons)
    return [name for name in first if name in second and first[name] != second[name]]


def _versions(python):
    listed = [python, "-m", "pip", "list", "--format", "json", "--disable-pip-version-check"]
    return {p["name"]: p["version"] for p in json.loads(_run(listed)) if p["name"] != "shapejit"}


def _run(command):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(command)}: {done.stderr.strip()[-2000:]}")
    return done.stdout
