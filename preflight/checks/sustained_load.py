"""Sustained load: first steady, then alternating between full load and idle. Temperature, power, clocks, correct results.

A thread reads the sensors during the load: a driver that stops responding under load is a fault and does not block the
test. All devices of a node run at once; the comparison with siblings follows later.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any

import msgspec

from preflight.check_context import Context, Device
from preflight.checks.load_products import LoadProducts, LoadSize
from preflight.checks.sensor_watch import HOT_C, SensorWatch, build_hung_result, inject_sensor_fault, open_sensors
from preflight.host import load_sensors
from preflight.host.load_sensors import LoadBurst, SensorReading, ThermalLimits
from preflight.host.significant_digits import round_to_four_digits
from preflight.results import Evidence, Figure, Location, Outcome, Result
from vocabulary.hardware.machine_files import Machine
from vocabulary.text.plurals import format_count

TEST = "sustained_load"
STEADY_SHARE = 0.6  # of the time; the rest is alternating load
SWINGS_S = (0.1, 0.2, 0.5, 1.0, 2.0)  # half a period: load, and equally long idle
SAG_PERCENT = 10.0  # smallest loss of speed that is reported
SLOW_FACTOR = 2
_clock = time.perf_counter


GPU_SIZE, HOST_SIZE = LoadSize("bfloat16", 8192, 32), LoadSize("float32", 512, 8)
_SHORT = {"bfloat16": "bf16", "float32": "fp32"}


def check_sustained_load(context: Context, machine: Machine | None = None) -> Iterator[Result]:
    """One result for this device."""
    device = context.device
    if device is None:
        raise ValueError(f"{TEST} tests a device and needs one")
    context.note("finding the sensors")
    sensors, limits, remarks = open_sensors(device, machine or Machine())
    watch = SensorWatch(inject_sensor_fault(sensors, limits, context.fault))
    if context.fault == "hot" and limits.slowdown_c is None:
        limits = ThermalLimits(slowdown_c=HOT_C)
    with watch.looking():
        work = LoadWork(context, device, watch)
        work.steady(STEADY_SHARE * context.seconds)
        steady = len(watch.readings)
        work.swing(context.seconds)
    if not watch.ended:
        yield build_hung_result(TEST, device, watch)
        return
    yield judge_sustained_load(device, work.done(), (watch.readings[:steady], watch.readings), limits, remarks)


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
        self._products = LoadProducts(device, self._size)
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
        times = self._size.burst * (SLOW_FACTOR if self._context.fault == "slow_one" else 1)
        products, count = self._products.repeat(times, self._inject_wrong_element)
        burst = LoadBurst(self._watch.since_s(), _clock() - began, self._size.burst)
        if products:
            when = "in a swing" if self._swings else "under steady load"
            of = f"{products} of {format_count(self._size.burst, 'matmul result')}"
            self._wrong = f"{of} differ from the first, in {format_count(count, 'word')}, {when} after {burst.at:.1f} s"
        return burst

    def _inject_wrong_element(self, number: int, output: Any) -> None:
        if self._context.fault == "wrong" and self._steady and number == 1:
            output[7, 7] = -output[7, 7]


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
