"""Sustained load: first steady, then alternating between full load and idle. Temperature, power, clocks, correct results.

A thread reads the sensors during the load: a driver that stops responding under load is a fault and does not block the
test. All devices of a node run at once; the comparison with siblings follows later.
"""

from __future__ import annotations

import itertools
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import torch

from preflight.check_context import Context, Device
from preflight.checks.torch_devices import synchronize_device
from preflight.host import load_sensors
from preflight.host.load_sensors import LoadBurst, SensorReading, Sensors, ThermalLimits
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError
from preflight.host.significant_digits import round_to_four_digits
from preflight.results import Evidence, Figure, Location, Outcome, Result
from vocabulary.hardware.machine_files import Machine
from vocabulary.text.plurals import format_count

TEST = "sustained_load"
STEADY_SHARE = 0.6  # of the time; the rest is alternating load
SWINGS_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # half a period: load, and equally long idle
READ_EVERY_S = 0.05
READINGS_MAX = 200_000
DRIVER_PATIENCE_S = 10.0
SAG_PERCENT = 10.0  # smallest loss of speed that is reported
SLOW_FACTOR = 2
_SEED = 20_260_801
_clock = time.perf_counter


class LoadSize(msgspec.Struct, frozen=True):
    """The product: square matrices of `rows`, of torch's type `kind`; `burst` products until the host waits for them."""

    kind: str
    rows: int
    burst: int

    @property
    def teraflop(self) -> float:
        """TFLOP of one product."""
        return 2 * self.rows**3 / 1e12


GPU_SIZE, HOST_SIZE = LoadSize("bfloat16", 8192, 32), LoadSize("float32", 512, 8)
_SHORT = {"bfloat16": "bf16", "float32": "fp32"}


def check_sustained_load(context: Context, machine: Machine | None = None) -> Iterator[Result]:
    """One result for this device."""
    device = context.device
    if device is None:
        raise ValueError(f"{TEST} tests a device and needs one")
    context.note("finding the sensors")
    sensors, limits, remarks = _open_sensors(device, machine or Machine())
    watch = SensorWatch(_inject_sensor_fault(sensors, limits, context.fault))
    if context.fault == "hot" and limits.slowdown_c is None:
        limits = ThermalLimits(slowdown_c=_HOT_C)
    with watch.looking():
        work = LoadWork(context, device, watch)
        work.steady(STEADY_SHARE * context.seconds)
        steady = len(watch.readings)
        work.swing(context.seconds)
    if not watch.ended:
        yield _build_hung_result(device, watch)
        return
    yield judge_sustained_load(device, work.done(), (watch.readings[:steady], watch.readings), limits, remarks)


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


class LoadResult(msgspec.Struct, frozen=True, kw_only=True):
    """The load: its size, the bursts of both phases, and the first product that differed from the first one."""

    size: LoadSize
    steady: tuple[LoadBurst, ...]
    swings: tuple[LoadBurst, ...]
    wrong: str = ""


class LoadWork:
    """Repeats the same product and compares each bit of each with the first: hot chips err now and then, not in every product."""

    def __init__(self, context: Context, device: Device, watch: SensorWatch) -> None:
        self._context, self._device, self._watch = context, device, watch
        self._size = HOST_SIZE if device.on_host else GPU_SIZE
        context.note(f"operands: {self._size.rows} rows of {self._size.kind}")
        source = torch.Generator(device.torch_name).manual_seed(_SEED)
        shape, kind = (self._size.rows, self._size.rows), getattr(torch, self._size.kind)
        self._left, self._right = (
            torch.randn(shape, generator=source, device=device.torch_name).to(kind) for _ in range(2)
        )
        self._output = torch.empty(shape, dtype=kind, device=device.torch_name)
        self._first = torch.matmul(self._left, self._right, out=self._output).clone()
        self._words, self._first_words = (each.view(torch.int64) for each in (self._output, self._first))
        self._steady: list[LoadBurst] = []
        self._swings: list[LoadBurst] = []
        self._wrong = ""

    def steady(self, seconds: float) -> None:
        """Without a pause for this long; at least one burst."""
        self._context.note(f"steady load for {seconds:g} s")
        until = _clock() + seconds
        while not self._steady or (_clock() < until and not self._wrong):
            self._steady.append(self._burst())
        self._watch.busy = False

    def swing(self, until_s: float) -> None:
        """Alternate load and idle, with several periods, until this many seconds since the start."""
        self._context.note("swings between full load and none")
        for half_s in itertools.cycle(SWINGS_S):
            until = _clock() + half_s
            while not self._wrong and (_clock() < until or not self._swings):
                self._swings.append(self._burst())
            self._watch.busy = False
            if self._wrong or self._watch.since_s() + half_s >= until_s:
                return
            time.sleep(half_s)

    def done(self) -> LoadResult:
        """The result."""
        return LoadResult(size=self._size, steady=tuple(self._steady), swings=tuple(self._swings), wrong=self._wrong)

    def _burst(self) -> LoadBurst:
        self._watch.busy = True
        began = _clock()
        differing = torch.zeros(2, dtype=torch.int64, device=self._device.torch_name)  # products, and words of 8 bytes
        for number in range(self._size.burst * (SLOW_FACTOR if self._context.fault == "slow_one" else 1)):
            torch.matmul(self._left, self._right, out=self._output)
            if self._context.fault == "wrong" and self._steady and number == 1:
                self._output[7, 7] = -self._output[7, 7]
            words = torch.ne(self._words, self._first_words).sum()
            differing += torch.stack((words != 0, words))
        synchronize_device(self._device)
        burst = LoadBurst(self._watch.since_s(), _clock() - began, self._size.burst)
        products, count = differing.tolist()
        if products:
            when = "in a swing" if self._swings else "under steady load"
            of = f"{products} of {format_count(self._size.burst, 'matmul result')}"
            self._wrong = f"{of} differ from the first, in {format_count(count, 'word')}, {when} after {burst.at:.1f} s"
        return burst


def judge_sustained_load(
    device: Device,
    done: LoadResult,
    readings: tuple[list[SensorReading], list[SensorReading]],
    limits: ThermalLimits,
    remarks: list[str],
) -> Result:
    """The result of a device whose driver responded to the end: `readings` of the steady phase, and all. Pure.

    `remarks` explain missing sensors. Readable sensors without values do not pass.
    """
    steady, every = readings
    setting = f"{_SHORT[done.size.kind]} {done.size.rows}"
    faults, said, evidence = load_sensors.judge_load_readings(every, limits)
    reasons = [*([done.wrong] if done.wrong else []), *faults]
    rates = [
        Figure(
            name="product_rate",
            value=round_to_four_digits(load_sensors.compute_product_rate(bursts) * done.size.teraflop),
            unit="TFLOP/s",
            setting=what,
        )
        for bursts, what in ((done.steady, f"{setting}, steady"), (done.swings, f"{setting}, swings"))
        if bursts and not done.wrong
    ]
    facts: Evidence = {"products": sum(burst.products for burst in (*done.steady, *done.swings))}
    sag = load_sensors.compute_sag_percent(done.steady)
    if sag is not None:
        facts["sag_percent"] = round(sag, 2)
        if sag > SAG_PERCENT:
            said = (*said, f"the last tenth of the steady load was {sag:.0f} % slower than the first")
    blind = "" if device.on_host or remarks else load_sensors.explain_blind_readings(every)
    return Result(
        test=TEST,
        outcome=Outcome.FAIL if reasons else Outcome.ERROR if blind else Outcome.PASS,
        device=device.name,
        reason="; ".join([*reasons, *([blind] if blind else [])]),
        figures=(*rates, *load_sensors.build_load_figures(steady, every, setting)),
        locations=(Location(gpu=device.uuid or device.name),) if reasons else (),
        remarks=(*remarks, *said),
        evidence=facts | evidence,
    )


def _build_hung_result(device: Device, watch: SensorWatch) -> Result:
    reason = (
        f"the driver did not answer for {DRIVER_PATIENCE_S:g} s under load; check the kernel log and reboot the node"
    )
    evidence: Evidence = {"readings": len(watch.readings)}
    return Result(test=TEST, outcome=Outcome.FAIL, device=device.name, reason=reason, evidence=evidence)


def _open_sensors(device: Device, machine: Machine) -> tuple[Sensors, ThermalLimits, list[str]]:
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


_HOT_C = 87.0


def _inject_sensor_fault(sensors: Sensors, limits: ThermalLimits, fault: str) -> Sensors:
    """The injected fault, as a sensor would report it."""
    changes: dict[str, Any] = {}
    if fault == "throttle":
        changes = {"reasons": load_sensors.HW_THERMAL | load_sensors.HW_SLOWDOWN}
    elif fault == "hot":
        changes = {"temperature_c": (limits.slowdown_c or _HOT_C) + 1, "margin_c": None}
    if not changes:
        return sensors
    return lambda at, busy: msgspec.structs.replace(sensors(at, busy), **changes)
