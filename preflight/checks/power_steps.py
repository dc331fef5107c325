"""Power steps: all devices of a node go from idle to full load and back together, as the steps of a training job make them.

A node's power supplies and each device's voltage regulators fail at edges rather than under steady load. The devices' processes
agree on a start by the monotonic clock, which they share, and then follow the same schedule without a word to each other, so
that a device that fails in a step delays no other. Every product is compared with the first, across all edges.
"""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

from preflight.check_context import Context, Device
from preflight.checks.load_products import LoadProducts, LoadSize
from preflight.checks.pair_exchange import reduce_longest_seconds
from preflight.checks.sensor_watch import SensorWatch, build_hung_result, inject_sensor_fault, open_sensors
from preflight.host.load_sensors import SensorReading, ThermalLimits, judge_load_readings
from preflight.results import Evidence, Location, Outcome, Result
from vocabulary.hardware.machine_files import Machine
from vocabulary.text.plurals import format_count

TEST = "power_steps"
HALVES_S = (
    0.5,
    0.2,
    0.1,
    0.05,
    0.02,
)  # how long a step lasts, and the pause after it: what supplies, then regulators buffer
STEPS_OF_EACH = 2
LEAD_S = 0.1  # from the agreement to the first edge
SPIN_S = 0.002  # sleeping ends late by up to this
LATE_S = 0.005  # later than this, a device's edge is not the others' edge
# A burst is the shortest load: with a longer one, falling edges would not coincide.
GPU_SIZE, HOST_SIZE = LoadSize("bfloat16", 8192, 4), LoadSize("float32", 512, 1)
LOST = "CUDA error: unspecified launch failure"  # what torch raises if a GPU falls off the bus during a product
_clock = time.monotonic


class PowerStep(NamedTuple):
    """One step, in seconds since the common start: load from `on` to `off`, then idle for as long."""

    number: int
    on: float
    off: float

    @property
    def half_s(self) -> float:
        """The duration of the load."""
        return self.off - self.on


class StepsResult(NamedTuple):
    """All steps: how many, the products in them, how many began late, and the first wrong products in words."""

    steps: int
    products: int
    late: int
    wrong: str


def check_power_steps(context: Context, machine: Machine | None = None) -> Iterator[Result]:
    """One result for this device; 'not applicable' for a single one, whose edges `sustained_load` has."""
    device = context.device
    if device is None:
        raise ValueError(f"{TEST} tests devices together and needs one")
    if len(context.devices) < 2:
        reason = "a single device has no others to step with; sustained_load switches its load"
        yield Result(test=TEST, outcome=Outcome.NOT_APPLICABLE, reason=reason)
        return
    context.note("finding the sensors")
    sensors, limits, remarks = open_sensors(device, machine or Machine())
    watch = SensorWatch(inject_sensor_fault(sensors, limits, context.fault))
    with watch.looking():
        done = StepWork(context, device).run(schedule_power_steps(context.seconds), watch)
    if not watch.ended:
        yield build_hung_result(TEST, device, watch)
        return
    yield judge_power_steps(device, done, watch.readings, limits, remarks)


def schedule_power_steps(seconds: float) -> list[PowerStep]:
    """The same steps on every device: long ones, then shorter ones, and again; at least one."""
    steps: list[PowerStep] = []
    began = 0.0
    for half_s in itertools.cycle(half for half in HALVES_S for _ in range(STEPS_OF_EACH)):
        if steps and began + 2 * half_s > seconds:
            return steps
        steps.append(PowerStep(len(steps), began, began + half_s))
        began += 2 * half_s
    raise AssertionError  # unreachable: the cycle has no end


class StepWork:
    """Follows the schedule on one device."""

    def __init__(self, context: Context, device: Device) -> None:
        self._context, self._device = context, device
        self._size = HOST_SIZE if device.on_host else GPU_SIZE
        context.note(f"operands: {self._size.rows} rows of {self._size.kind}")
        self._work = LoadProducts(device, self._size)
        self._work.repeat(1)  # compiles and loads everything before the first edge
        self._products, self._late, self._wrong = 0, 0, ""

    def run(self, steps: list[PowerStep], watch: SensorWatch) -> StepsResult:
        """All steps, or until a product is wrong."""
        self._context.note("agreeing on the first edge")
        start = reduce_longest_seconds(self._device, _clock()) + LEAD_S
        for step in steps:
            self._context.note(f"step {step.number + 1} of {len(steps)}, {step.half_s:g} s")
            _wait_until(start + step.on)
            watch.busy = True  # through the pauses as well: a supply reports an edge after it
            self._late += _clock() - start - step.on > LATE_S
            try:
                self._load(step, start + step.off)
            except RuntimeError as error:
                error.args = (f"in step {step.number + 1} of {len(steps)}, {step.half_s:g} s: {error}",)
                raise
            if self._wrong:
                break
        return StepsResult(step.number + 1, self._products, self._late, self._wrong)

    def _load(self, step: PowerStep, until: float) -> None:
        """Full load until the falling edge, at least one burst."""

        def inject(number: int, output: Any) -> None:
            if step.number == 1 and number == 0:
                if self._context.fault == "lost":
                    raise RuntimeError(LOST)
                if self._context.fault == "wrong":
                    output[7, 7] = -output[7, 7]

        first = True
        while first or (_clock() < until and not self._wrong):
            products, words = self._work.repeat(self._size.burst, inject)
            self._products += self._size.burst
            if products:
                where = "at the rising edge" if first else "after the rising edge"
                of = f"{products} of {format_count(self._size.burst, 'matmul result')}"
                self._wrong = (
                    f"{of} differ from the first, in {format_count(words, 'word')}, {where} of step {step.number + 1}, "
                    f"{step.half_s:g} s"
                )
            first = False


def judge_power_steps(
    device: Device, done: StepsResult, readings: list[SensorReading], limits: ThermalLimits, remarks: list[str]
) -> Result:
    """The result of a device whose driver responded to the end. Pure."""
    faults, said, evidence = judge_load_readings(readings, limits)
    reasons = [*([done.wrong] if done.wrong else []), *faults]
    powers = [reading.power_w for reading in readings if reading.power_w is not None]
    evidence |= {"steps": done.steps, "products": done.products, "late_steps": done.late}
    if powers:
        evidence |= {"power_min_w": round(min(powers), 1), "power_max_w": round(max(powers), 1)}
    if 2 * done.late > done.steps:
        late = f"{done.late} of {format_count(done.steps, 'step')}"
        said = (*said, f"{late} began over {LATE_S * 1e3:g} ms late: the devices did not step together")
    return Result(
        test=TEST,
        outcome=Outcome.FAIL if reasons else Outcome.PASS,
        device=device.name,
        reason="; ".join(reasons),
        locations=(Location(gpu=device.uuid or device.name),) if reasons else (),
        remarks=(*remarks, *said),
        evidence=_without_load_share(evidence),
    )


def _without_load_share(evidence: Evidence) -> Evidence:
    """Without the share of power-capped readings, which pauses make meaningless."""
    return {name: value for name, value in evidence.items() if name != "power_capped_percent"}


def _wait_until(moment: float) -> None:
    if (rest := moment - _clock() - SPIN_S) > 0:
        time.sleep(rest)
    while _clock() < moment:
        pass
