"""Whether others may read a file that holds a secret.

Said, and not refused as ssh does: a node that stops reporting, or a script that stops working, over the mode of a file that was
good enough until then does more harm than the sentence. Kubernetes mounts secrets 0644 where nobody else is.
"""

from __future__ import annotations

import os
import stat
from pathlib import Path


def read_by_others(path: Path) -> str:
    """A sentence that says so, with what to do; empty where only its owner may read it, or nothing is known."""
    try:
        found = path.stat()
        real = path.resolve()
    except (OSError, RuntimeError):  # whoever reads it says what is wrong
        return ""
    mode = stat.S_IMODE(found.st_mode)
    if not mode & (stat.S_IRWXG | stat.S_IRWXO) or _mounted_by_kubernetes(real):
        return ""
    if not mode & stat.S_IRWXO and found.st_uid != os.geteuid():
        return ""  # its owner means this group to read it
    return f"{path}: others may read this secret ({mode:04o}): chmod 0600 {path}, and have a new one issued"


def _mounted_by_kubernetes(real: Path) -> bool:
    """A secret's keys are links into a folder such as ..2026_11_22_10_00_00.123, in a mount of the pod alone."""
    return real.parent.name.startswith("..2")
