"""Hatchling build hook: with SHAPEJIT_BUNDLE=1, a wheel contains the common kernels.

Off by default: it takes minutes, and the wheel is for one Python version, system and architecture.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

BUNDLE_VARIABLE = "SHAPEJIT_BUNDLE"
BUNDLED_LEVELS = ("x86-64-v3", "x86-64-v4")


class BundleHook(BuildHookInterface):  # type: ignore[misc]  # mypy takes hatchling for Any
    """Adds `shapejit/objects/`."""

    def dependencies(self) -> list[str]:
        """The builder's requirements, for the environment that wheels are built in."""
        return (
            list(self.metadata.core.dependencies) if os.environ.get(BUNDLE_VARIABLE) == "1" else []
        )

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Build the objects, and tag the wheel with the platform that they run on."""
        if os.environ.get(BUNDLE_VARIABLE) != "1" or version == "editable":
            return
        self.folder = tempfile.TemporaryDirectory(prefix="shapejit-objects-")
        command = [
            sys.executable,
            "-m",
            "shapejit.builder.bundle",
            self.folder.name,
            *BUNDLED_LEVELS,
        ]
        subprocess.run(command, cwd=self.root, check=True)
        build_data["force_include"] |= {
            str(Path(self.folder.name, level)): f"shapejit/objects/{level}"
            for level in BUNDLED_LEVELS
        }
        build_data["pure_python"] = False
        build_data["infer_tag"] = True
