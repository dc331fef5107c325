"""Reads a device's sensors beside a load: a driver that stops responding under load is a fault and does not block the test."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec

from preflight.check_context import Device
from preflight.host import load_sensors
from preflight.host.load_sensors import SensorReading, Sensors, ThermalLimits
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError
from preflight.results import Evidence, Outcome, Result
from vocabulary.hardware.machine_files import Machine

READ_EVERY_S = 0.05
READINGS_MAX = 200_000
DRIVER_PATIENCE_S = 10.0
HOT_C = 87.0  # of an injected hot device whose limit is unknown
_clock = time.perf_counter


class SensorWatch:
    """Reads sensors until stopped. The load sets `busy`."""

    def __init__(self, sensors: Sensors, patience_s: float = DRIVER_PATIENCE_S) -> None:
        self._sensors, self._patience_s = sensors, patience_s
        self._began = _clock()
        self._over = threading.Event()
        self.readings: list[SensorReading] = []
        self.busy = False
        self.ended = False

    def since_s(self) -> float:
        """Seconds since the start."""
        return _clock() - self._began

    @contextmanager
    def looking(self) -> Iterator[None]:
        """Read sensors while the context lasts; a hung driver is abandoned."""
        looker = threading.Thread(target=self._look, daemon=True)
        looker.start()
        try:
            yield
        finally:
            self._over.set()
            looker.join(self._patience_s)
            self.ended = not looker.is_alive()

    def _look(self) -> None:
        while len(self.readings) < READINGS_MAX:
            before = self.busy
            reading = self._sensors(self.since_s(), before)
            self.readings.append(msgspec.structs.replace(reading, busy=before and self.busy))
            if self._over.wait(READ_EVERY_S):
                return


def build_hung_result(test: str, device: Device, watch: SensorWatch) -> Result:
    """The result of a device whose driver did not answer to the end."""
    reason = (
        f"the driver did not answer for {DRIVER_PATIENCE_S:g} s under load; check the kernel log and reboot the node"
    )
    evidence: Evidence = {"readings": len(watch.readings)}
    return Result(test=test, outcome=Outcome.FAIL, device=device.name, reason=reason, evidence=evidence)


def open_sensors(device: Device, machine: Machine) -> tuple[Sensors, ThermalLimits, list[str]]:
    """The sensors of a device, its limits, and remarks on sensors that are missing."""
    if device.on_host:
        sensors, limits = load_sensors.open_host_sensors(machine, sorted(os.sched_getaffinity(0)))
        return sensors, limits, []
    try:
        driver = NvmlDriver()
    except NoDriverError as error:
        return _read_no_sensor, ThermalLimits(), [f"no sensor can be read: {error}"]
    gpu = driver.gpu(device.uuid)
    if gpu is None:
        return (
            _read_no_sensor,
            ThermalLimits(),
            [f"no sensor can be read: the driver has no GPU {device.uuid or device.name}"],
        )
    missing = load_sensors.explain_missing_reasons(driver, gpu)
    return *load_sensors.open_gpu_sensors(driver, gpu), [missing] if missing else []


def _read_no_sensor(at: float, busy: bool) -> SensorReading:  # noqa: FBT001 - a reading's own fields, in their order
    return SensorReading(at=at, busy=busy)


def inject_sensor_fault(sensors: Sensors, limits: ThermalLimits, fault: str) -> Sensors:
    """The injected fault, as a sensor would report it."""
    changes: dict[str, Any] = {}
    if fault == "throttle":
        changes = {"reasons": load_sensors.HW_THERMAL | load_sensors.HW_SLOWDOWN}
    elif fault == "brake":
        changes = {"reasons": load_sensors.HW_BRAKE | load_sensors.HW_SLOWDOWN}
    elif fault == "hot":
        changes = {"temperature_c": (limits.slowdown_c or HOT_C) + 1, "margin_c": None}
    if not changes:
        return sensors
    return lambda at, busy: msgspec.structs.replace(sensors(at, busy), **changes)
