"""Builds the writer of beacon pages in C where there is a compiler; elsewhere the package is pure Python, and complete."""

from __future__ import annotations

import shutil
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "healthd/trainer/beacons"
LIMITED = sys.version_info >= (
    3,
    11,
)  # the first whose stable ABI has buffers: one build then serves all later versions


class CustomBuildHook(BuildHookInterface[Any]):
    """Adds the extension to a wheel, or to the source tree of an editable installation."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, if this wheel can hold the result."""
        self._place = tempfile.mkdtemp()
        if self.target_name != "wheel" or sysconfig.get_config_var("Py_GIL_DISABLED"):
            return  # the extension relies on the interpreter lock
        for built in compile_extension(self.root, self._place):
            if version == "editable":
                shutil.copy(built, Path(self.root, PACKAGE))
                continue
            build_data["force_include"][str(built)] = f"{PACKAGE}/{built.name}"
            build_data["pure_python"] = False
            platform = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["tag"] = f"cp311-abi3-{platform}" if LIMITED else None
            build_data["infer_tag"] = not LIMITED

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:  # noqa: ARG002 - hatch's call
        """Remove what was compiled; the wheel holds it by now."""
        shutil.rmtree(self._place)


def compile_extension(root: str, place: str) -> list[Path]:
    """Return the extension's file, compiled into `place`; nothing where it cannot be compiled."""
    try:
        from setuptools import Distribution, Extension  # noqa: PLC0415 - optional, like the extension
        from setuptools.command.build_ext import build_ext  # noqa: PLC0415 - same
    except ImportError:
        return []
    extension = Extension(
        "_step_writer",
        [str(Path(root, PACKAGE, "_step_writer.c"))],
        define_macros=[("Py_LIMITED_API", "0x030B0000")] if LIMITED else [],
        py_limited_api=LIMITED,
        optional=True,
    )
    command = build_ext(Distribution({"ext_modules": [extension]}))
    command.build_lib, command.build_temp = place, tempfile.mkdtemp(dir=place)
    command.ensure_finalized()
    command.run()
    return list(Path(place).glob("*.so"))
