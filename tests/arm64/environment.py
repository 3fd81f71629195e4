"""Debian for arm64 in a folder, run by qemu's user emulation: no container, no chroot."""

import os
import re
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path

REPOSITORY = Path(__file__).parents[2]
FOLDER = Path(os.environ.get("SHAPEJIT_ARM64") or Path.home() / ".cache/shapejit-arm64")
ROOT, SITE, PYTHON = FOLDER / "root", FOLDER / "site", FOLDER / "python"

TOOLS = ("qemu-user-static", "debootstrap", "debian-archive-keyring")
RELEASE, VERSION = "bookworm", "3.11"
GLIBC = range(17, 37)  # 2.17, the oldest that wheels ask for, to that of the release
TESTS_NEED = (  # without onnxruntime, whose import ends emulated processes
    *("hypothesis", "pytest", "pytest-xdist"),
    *("dask", "einops", "gguf", "mlx", "onnx", "onnx-ir", "safetensors"),
)

# As its own argv[0] the script is sys.executable, so that tests start processes by it, too.
SCRIPT = f"""#!/bin/sh
here=$(dirname "$(readlink -f "$0")")
export PYTHONHOME="$here/root/usr" QEMU_LD_PREFIX="$here/root"
exec qemu-aarch64-static -cpu max -0 "$0" "$here/root/usr/bin/python{VERSION}" "$@"
"""


def build() -> None:
    """Build what is missing of the environment, and bring its packages up to date."""
    if not (ROOT / f"usr/bin/python{VERSION}").exists():
        subprocess.run(["apt-get", "update", "-qq"], check=True)
        subprocess.run(["apt-get", "install", "-qq", "--no-install-recommends", *TOOLS], check=True)
        options = ("--foreign", "--arch=arm64", "--variant=minbase", "--include=python3")
        subprocess.run(["debootstrap", *options, RELEASE, ROOT], check=True)
        for package in sorted((ROOT / "var/cache/apt/archives").glob("*.deb")):
            subprocess.run(["dpkg", "-x", package, ROOT], check=True)
    platforms = [f"--platform=manylinux_2_{minor}_aarch64" for minor in reversed(GLIBC)]
    options = ("--only-binary=:all:", f"--python-version={VERSION}", "--upgrade", "--no-compile")
    pip = (sys.executable, "-m", "pip", "install", "--quiet", f"--target={SITE}")
    subprocess.run([*pip, *options, *platforms, *requirements()], check=True)
    PYTHON.write_text(SCRIPT)
    PYTHON.chmod(0o755)


def requirements() -> list[str]:
    """What pyproject.toml says of the package's dependencies and of those that tests need."""
    project = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())["project"]
    extras = chain.from_iterable(project["optional-dependencies"].values())
    wanted = [extra for extra in extras if re.match(r"[\w-]+", extra)[0] in TESTS_NEED]
    return [*project["dependencies"], *wanted]


def variables(processor: str) -> dict[str, str]:
    """The environment variables of the emulated Python; kernels are compiled for `processor`."""
    return os.environ | {
        "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/tests:{SITE}",
        "PYTHONPYCACHEPREFIX": str(FOLDER / "bytecode"),
        "NUMBA_CACHE_DIR": str(FOLDER / "kernels" / processor),
        "NUMBA_CPU_NAME": processor,
        "NUMBA_CPU_FEATURES": "",
        "SHAPEJIT_BUILDER": sys.executable,  # this machine's: emulated it takes minutes a kernel
    }
