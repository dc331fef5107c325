"""Wall clocks that are stepped while everything else goes on: a small library of ours, built by the machine's C compiler.

Debian 12's libfaketime (0.9.10) cannot be had for this: under it `time.sleep` of Python 3.11 fails with EINVAL.
"""

from __future__ import annotations

import struct
import subprocess
from pathlib import Path

SOURCE = Path(__file__).with_suffix(".c")
NANOSECONDS = 1_000_000_000


def build(place: Path) -> Path:
    """The library; compiled if it is not in `place` yet."""
    library = place / "stepped_clock.so"
    if not library.exists():
        command = ["cc", "-Wall", "-Wextra", "-Werror", "-O1", "-shared", "-fPIC", "-o", str(library), str(SOURCE)]
        subprocess.run(command, check=True)
    return library


def set_offset(file: Path, offset_s: float) -> None:
    """From now on clocks that look into `file` are so far off; in place, as they have it mapped."""
    file.touch()
    with file.open("r+b", buffering=0) as clock:
        clock.write(struct.pack("=q", int(offset_s * NANOSECONDS)))


def environment(library: Path, file: Path) -> dict[str, str]:
    """What a process with such a clock is started with."""
    return {"LD_PRELOAD": str(library), "STEPPED_CLOCK": str(file)}
