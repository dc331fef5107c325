"""Small files of the kernel below /proc and /sys: reading them, and what they mean to more than one program.

Only the standard library and no regular expressions: healthd's source child loads this, and its whole memory is a sixth of
the node's budget.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

FILE_BYTES_MAX = 1 << 20
SILENCED_MAX = 10_000
_EDAC = "/sys/devices/system/edac/mc"


class Machine:
    """One machine, below `root`, so that tests can use a folder instead of /."""

    def __init__(self, root: str | os.PathLike[str] = "/") -> None:
        self._root = os.fspath(root).rstrip("/")
        self._real_root = os.path.realpath(root).rstrip("/")
        self._silenced: set[str] = set()

    def text(self, path: str) -> str | None:
        """Return a small file's text, stripped; None if it is missing or unreadable.

        A file that fails with "invalid" or "not supported" is not read again: some drivers log every refusal in the
        kernel log, and would flood it.
        """
        if path in self._silenced:
            return None
        try:
            descriptor = os.open(self._root + path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except OSError:
            return None
        data = b""
        try:  # the kernel returns a long table page by page
            while len(data) < FILE_BYTES_MAX and (more := os.read(descriptor, FILE_BYTES_MAX - len(data))):
                data += more
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.EOPNOTSUPP) and len(self._silenced) < SILENCED_MAX:
                self._silenced.add(path)
            return None
        finally:
            os.close(descriptor)
        return data.decode(errors="replace").strip()

    def number(self, path: str) -> int | None:
        """Return the integer in a file, decimal or 0x…; None if there is none."""
        text = self.text(path)
        try:
            return None if text is None else int(text, 0)
        except ValueError:
            return None

    def names(self, directory: str) -> list[str]:
        """Return a folder's entries, sorted; empty if it is missing."""
        try:
            return sorted(os.listdir(self._root + directory))  # noqa: PTH208 - pathlib costs the child half a MiB
        except OSError:
            return []

    def exists(self, path: str) -> bool:
        """Return whether the path exists."""
        return os.path.exists(self._root + path)  # noqa: PTH110 - same

    def target(self, path: str) -> str:
        """Return the real path behind symbolic links, as the machine names it; empty if there is none."""
        real = os.path.realpath(self._root + path)
        inside = real.startswith(f"{self._real_root}/") and os.path.exists(real)  # noqa: PTH110 - same
        return real[len(self._real_root) :] if inside else ""


class MemoryModule(NamedTuple):
    """Errors of a memory module since boot; those of no known module if `name` is empty."""

    controller: str
    name: str
    label: str  # as printed on the board, if the firmware reports it
    corrected: int | None
    uncorrected: int | None


def read_memory_modules(machine: Machine) -> list[MemoryModule]:
    """Return every module and the errors without a module (kernel Documentation/driver-api/edac.rst), by controller.

    Empty without ECC memory or the chipset's driver.
    """
    found = []
    for controller in machine.names(_EDAC):
        if not (controller.startswith("mc") and controller[2:].isdecimal()):
            continue
        where = f"{_EDAC}/{controller}"
        names = [n for n in machine.names(where) if n.startswith(("dimm", "rank")) and n[4:].isdecimal()]
        for name in names:
            label = machine.text(f"{where}/{name}/dimm_label") or ""
            counts = [machine.number(f"{where}/{name}/dimm_{kind}_count") for kind in ("ce", "ue")]
            found.append(MemoryModule(controller, name, label, *counts))
        suffix = "_noinfo" if names else ""  # without modules the controller's own sums are all there is
        rest = [machine.number(f"{where}/{kind}{suffix}_count") for kind in ("ce", "ue")]
        found.append(MemoryModule(controller, "", "", *rest))
    return found


def parse_leading_number(text: str) -> float | None:
    """Parse ``400 Gb/sec (4X NDR)`` as 400 and ``32.0 GT/s PCIe`` as 32; None if it begins with something else."""
    word = text.split(" ", 1)[0]
    return float(word) if word.replace(".", "", 1).isdecimal() else None


def parse_port_word(text: str) -> str:
    """Parse the state ``4: ACTIVE`` of an RDMA port as ACTIVE; empty if it has another form."""
    return text.partition(": ")[2]


def parse_aer_total(text: str, name: str) -> int | None:
    """Parse ``TOTAL_ERR_NAME 7`` of an aer_dev_* file (kernel ABI/testing/sysfs-bus-pci-devices-aer)."""
    for line in text.splitlines():
        word, _, value = line.partition(" ")
        if word == f"TOTAL_ERR_{name}":
            return int(value) if value.strip().isdecimal() else None
    return None
