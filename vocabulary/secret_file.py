"""Detects a secret file that other users can read.

It warns, and does not refuse as ssh does: a node that stops reporting over a file mode does more harm than the warning
prevents. Kubernetes mounts secrets 0644 where there are no other users.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_by_others(path: Path) -> str:
    """Return a warning with the remedy; empty if only the owner may read the file, or if its mode is unknown."""
    try:
        found = path.stat()
        real = path.resolve()
    except (OSError, RuntimeError):  # the code that reads it reports the error
        return ""
    mode = stat.S_IMODE(found.st_mode)
    if not mode & (stat.S_IRWXG | stat.S_IRWXO) or _mounted_by_kubernetes(real):
        return ""
    if not mode & stat.S_IRWXO and found.st_uid != os.geteuid():
        return ""  # the owner lets this group read it
    return f"{path}: other users can read this secret ({mode:04o}): chmod 0600 {path}, and issue a new one"


def _mounted_by_kubernetes(real: Path) -> bool:
    """Return whether it is a Kubernetes secret: a link into a folder such as ..2026_11_22_10_00_00.123 of a mount."""
    return real.parent.name.startswith("..2")
