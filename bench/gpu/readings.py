"""Clocks, power, temperature and what held the card back during the run, read through NVML; nothing is ever set."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from typing import Any

from bench.gpu.table import Row

EVERY_S = 0.2
SAMPLES_MAX = 10_000
# NVML's bits of the reasons for a clock below the highest.
REASONS = {
    0x1: "idle",
    0x2: "clocks set by an application",
    0x4: "power cap",
    0x8: "hardware slowdown",
    0x10: "sync boost",
    0x20: "heat (software)",
    0x40: "heat (hardware)",
    0x80: "power brake",
    0x100: "display clocks",
}


class Readings:
    """Samples one GPU until `rows` is asked for. Without NVML it says so in its row."""

    def __init__(self, uuid: str) -> None:
        self._samples: list[tuple[int, int, float, int, int]] = []
        self._enough = threading.Event()
        self._why_not = ""
        self._handle: Any = None
        try:
            import pynvml  # noqa: PLC0415 - the table is printed without it, too

            self._nvml = pynvml
            pynvml.nvmlInit()
            self._handle = pynvml.nvmlDeviceGetHandleByUUID(uuid)
        except Exception as error:  # noqa: BLE001 - no binding, no library, no driver, no such GPU: all the same here
            self._why_not = str(error) or type(error).__name__
            return
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def neighbours(self) -> str:
        """Who else is on the card, or that it is cut in slices: both explain rates; nothing if neither."""
        if self._handle is None:
            return ""
        said = []
        others = [p for p in self._ask("nvmlDeviceGetComputeRunningProcesses", default=[]) if p.pid != os.getpid()]
        if others:
            used = sum(p.usedGpuMemory or 0 for p in others) / 2**30
            said.append(f"{len(others)} other processes on this GPU ({used:.1f} GiB): rates may be low")
        mode = self._ask("nvmlDeviceGetMigMode", default=[0, 0])
        if mode[0]:
            said.append("MIG is on: this is a slice, and no digest of it may be compared with a whole card's")
        return "; ".join(said)

    def rows(self) -> Iterator[Row]:
        """What was read, from least to most."""
        if self._handle is None:
            yield Row("readings", "NVML", note=f"not read: {self._why_not}")
            return
        self._enough.set()
        self._thread.join()
        names = (("SM clock", "MHz"), ("memory clock", "MHz"), ("power", "W"), ("temperature", "°C"))
        for column, (name, unit) in enumerate(names):
            values = sorted(sample[column] for sample in self._samples)
            if values:
                middle = values[len(values) // 2]
                yield Row("readings", name, middle, unit, note=f"{values[0]:.0f} to {values[-1]:.0f}")
        seen = 0
        for sample in self._samples:
            seen |= sample[4]
        known = [text for bit, text in REASONS.items() if seen & bit]
        if rest := seen & ~sum(REASONS):
            known.append(f"unknown bits {rest:#x}")
        yield Row("readings", "clocks held back by", note=", ".join(known) or "nothing")

    def _watch(self) -> None:
        while not self._enough.wait(EVERY_S) and len(self._samples) < SAMPLES_MAX:
            self._samples.append(
                (
                    self._ask("nvmlDeviceGetClockInfo", 1, default=0),  # 1: SM
                    self._ask("nvmlDeviceGetClockInfo", 2, default=0),  # 2: memory
                    self._ask("nvmlDeviceGetPowerUsage", default=0) / 1000,
                    self._ask("nvmlDeviceGetTemperature", 0, default=0),
                    self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", default=0),
                )
            )

    def _ask(self, name: str, *arguments: int, default: Any) -> Any:
        try:
            return getattr(self._nvml, name)(self._handle, *arguments)
        except Exception:  # noqa: BLE001 - what a card or driver does not have is left out
            return default
