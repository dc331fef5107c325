"""Reads simulated faults: one small file each, once a second, only if the configuration allows it.

Without the folder nothing is simulated. An invalid file is removed, and logged.
"""

from __future__ import annotations

import contextlib
import logging
from pathlib import Path

import msgspec

from healthd.gpu_monitoring.simulated_faults import SimulatedFault, SimulatedHang

FILES_MAX = 100
FILE_BYTES_MAX = 1 << 16

_log = logging.getLogger("healthd")
_decode = msgspec.json.Decoder(dict[str, msgspec.Raw]).decode


class SimulatedFaultFolder:
    """The folder. Hangs are returned once; other faults until they expire."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def read(self, now: float) -> tuple[list[SimulatedFault], list[SimulatedHang]]:
        """Return the faults to simulate at `now` (UTC seconds)."""
        pretences: list[SimulatedFault] = []
        hangs: list[SimulatedHang] = []
        try:
            files = sorted(self._folder.glob("*.json"))[:FILES_MAX]
        except OSError:
            return [], []
        for file in files:
            fault = self._parse(file)
            if isinstance(fault, SimulatedFault) and fault.until > now:
                pretences.append(fault)
                continue
            with contextlib.suppress(OSError):
                file.unlink()
            if isinstance(fault, SimulatedHang):
                hangs.append(fault)
        return pretences, hangs

    def _parse(self, file: Path) -> SimulatedFault | SimulatedHang | None:
        try:
            with file.open("rb") as opened:
                text = opened.read(FILE_BYTES_MAX)
            if "source" in _decode(text):
                return msgspec.json.decode(text, type=SimulatedHang)
            return msgspec.json.decode(text, type=SimulatedFault)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError) as error:
            _log.warning("%s: not a valid simulated fault: %s; removed", file, error)
            return None
