"""Commits installed into fresh virtual environments, side by side."""

import os
import subprocess
import sys
import tarfile
from pathlib import Path


class InstallError(ValueError):
    """A commit that cannot be installed."""


def install(repository, commit, folder):
    """The Python of a new environment in `folder` with that commit's shapejit; used again."""
    folder = Path(folder)
    python, done = folder / "venv" / "bin" / "python", folder / "installed"
    if done.is_file() and done.read_text() == commit:
        return str(python)
    source = folder / "source"
    source.mkdir(parents=True, exist_ok=True)
    archive = folder / "source.tar"
    _run(["git", "-C", str(repository), "archive", "--output", str(archive), commit])
    with tarfile.open(archive) as packed:
        packed.extractall(source, filter="data")
    _run([sys.executable, "-m", "venv", "--clear", str(folder / "venv")])
    pip = [str(python), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    _run([*pip, str(source)])
    done.write_text(commit)
    return str(python)


def versions(python):
    """What is installed beside shapejit: it must be the same on both sides."""
    done = _run([python, "-m", "pip", "list", "--format", "freeze", "--disable-pip-version-check"])
    return {line for line in done.splitlines() if not line.startswith(("shapejit", "pip="))}


def _run(command):
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise InstallError(f"{' '.join(command)}: {done.stderr.strip()[-2000:]}")
    return done.stdout
