"""What type checkers know of a user's script, and that its lines do what they say."""

import runpy
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parent.parent
SCRIPT = ROOT / "tests" / "users_script.py"


def test_mypy_knows_every_result():
    # The configuration and the cache of the project: its modules were checked before.
    command = [sys.executable, "-m", "mypy", "--config-file", "pyproject.toml", str(SCRIPT)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr


def test_the_lines_run():
    runpy.run_path(str(SCRIPT))
