"""Where Triton keeps compiled kernels, and the kernels that a site compiled ahead of time."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

CACHE_VARIABLE = "TRITON_CACHE_DIR"
COMPILED_VARIABLE = "HEALTHD_PREFLIGHT_KERNELS"
STATE = Path("/var/lib/gpu-healthd")


def choose_kernel_cache(state: Path = STATE) -> dict[str, str]:
    """Where Triton keeps compiled kernels, unless the environment says: with healthd's state, for root.

    A service may not see root's home directory, and a node's first gate finds what the test after its installation compiled.
    """
    own = os.geteuid() == 0 and state.is_dir() and os.access(state, os.W_OK)
    return {CACHE_VARIABLE: str(state / "preflight" / "triton")} if own else {}


def copy_compiled_kernels(environment: Mapping[str, str]) -> None:
    """Copy what lies in `HEALTHD_PREFLIGHT_KERNELS`, as `preflight compile` left it, and Triton's cache lacks.

    An image has them in a folder that may be read-only, while Triton writes to its cache. What cannot be copied, Triton
    compiles.
    """
    compiled, cache = environment.get(COMPILED_VARIABLE, ""), environment.get(CACHE_VARIABLE, "")
    if not compiled or not cache:
        return
    with suppress(OSError):
        Path(cache).mkdir(parents=True, exist_ok=True)
        present = {path.name for path in Path(cache).iterdir()}
        for entry in Path(compiled).iterdir():
            if entry.name not in present and entry.is_dir():
                part = Path(cache, f".{entry.name}.{os.getpid()}")  # whole under its name, or not at all
                with suppress(OSError):
                    shutil.copytree(entry, part)
                    _point_to_copy(part, Path(cache, entry.name))
                    part.rename(Path(cache, entry.name))
                shutil.rmtree(part, ignore_errors=True)


def _point_to_copy(part: Path, copied: Path) -> None:
    """Triton notes the absolute paths of a kernel's files, and compiles again where it finds none of them."""
    for group in part.glob("__grp__*"):
        with suppress(ValueError, KeyError, TypeError):  # of another Triton: it compiles
            names = json.loads(group.read_bytes())["child_paths"]
            group.write_text(json.dumps({"child_paths": {name: str(copied.absolute() / name) for name in names}}))
