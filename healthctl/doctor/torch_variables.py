"""Environment variables that the installed PyTorch reads, from its C++ headers. torch is not imported, which takes seconds.

Each variable is a list of names in `ProcessGroupNCCL.hpp` or `FlightRecorder.hpp`: the first is the current name, the
others are deprecated names, read with a warning if the first is not set.
"""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import NamedTuple

_HEADERS = "include/torch/csrc/distributed/c10d"
_LIST = re.compile(r"\{\s*((?:\"[A-Z0-9_]+\"\s*,?\s*)+)\}")
_NAME = re.compile(r"\"([A-Z0-9_]+)\"")
_VERSION = re.compile(r"__version__\s*=\s*['\"]([^'\"]+)")
# Read by the flight recorder's writer in the library, and named in no header.
WITHOUT_HEADER = {"TORCH_FR_DUMP_TEMP_FILE": "TORCH_FR_DUMP_TEMP_FILE"} | {
    "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": "TORCH_FR_DUMP_TEMP_FILE",
    "TORCH_FR_DUMP_DYNAMIC_FILE_NAME": "TORCH_FR_DUMP_DYNAMIC_FILE_NAME",
}


class TorchInstallation(NamedTuple):
    """An installed torch."""

    version: str
    reads: dict[str, str]  # each name it reads → its current name


def installed_torch() -> TorchInstallation | None:
    """The torch that `python` would import here; None if there is none, or one without headers."""
    try:
        spec = importlib.util.find_spec("torch")
    except (ImportError, ValueError):
        return None
    if spec is None or not spec.submodule_search_locations:
        return None
    return read_torch_headers(Path(spec.submodule_search_locations[0]))


def read_torch_headers(root: Path) -> TorchInstallation | None:
    """The torch in this folder; None if its headers are missing or name no variable."""
    try:
        headers = [path.read_text(errors="replace") for path in sorted((root / _HEADERS).glob("*.hpp"))]
        version = _VERSION.search((root / "version.py").read_text(errors="replace"))
    except OSError:
        return None
    reads = parse_variable_names("\n".join(headers))
    if not reads:
        return None
    return TorchInstallation(version[1] if version else "of unknown version", {**WITHOUT_HEADER, **reads})


def parse_variable_names(header: str) -> dict[str, str]:
    """Each variable in a C++ header's name lists → the current name of its list.

    A name that is first in some list maps to itself, even if another list ends with it.
    """
    lists = [_NAME.findall(found[1]) for found in _LIST.finditer(header)]
    ours = [names for names in lists if names[0].startswith(("TORCH_NCCL_", "TORCH_FR_"))]
    older = {name: names[0] for names in ours for name in names[1:]}
    return {**older, **{names[0]: names[0] for names in ours}}
