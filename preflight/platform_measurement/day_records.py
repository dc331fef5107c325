"""The file of `preflight day`: frozen records, JSON, and their published schema."""

from __future__ import annotations

import enum
from typing import Any

import msgspec

from preflight.check_context import Device
from preflight.document_schema import build_record_schema, format_schema
from preflight.host.nvml_recording import NvmlRecording
from preflight.results import Document, Outcome, Verdict

DAY_VERSION = 1
FILE_NAME = f"preflight-day-{DAY_VERSION}.json"


class Stage(str, enum.Enum):
    """The stages of a day."""

    DRIVER = "driver answers"
    GATES = "gates"
    FAULTS = "faults of the gate"
    ENDINGS = "faults that end a process"
    STANDARD = "faults of tests from standard on"


class Ending(str, enum.Enum):
    """How the session ended."""

    COMPLETE = "complete"
    OUT_OF_TIME = "out of time"
    INTERRUPTED = "interrupted"
    NO_DEVICE = "no device"


class StageReport(msgspec.Struct, frozen=True, kw_only=True):
    """One stage: its steps planned and done, and its duration. `notes` say why steps are missing."""

    stage: Stage
    planned: int
    done: int
    seconds: float
    notes: tuple[str, ...] = ()


class GateRun(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the gate without faults; `tests` are the seconds of the slowest device in each test."""

    verdict: Verdict
    reason: str
    started_at: float
    seconds: float
    tests: dict[str, float]


class FigureScatter(msgspec.Struct, frozen=True, kw_only=True):
    """One figure over all passed results of the gates.

    `usual` is the median of the devices' medians, `between` the spread of those medians and `repeat` that of one device's
    values, as robust standard deviations and shares of the median. `joint`: the devices measure it together. `values` are each
    device's, in the order of the gates.
    """

    product: str
    test: str
    figure: str
    setting: str
    unit: str
    usual: float
    between: float
    repeat: float
    joint: bool
    values: dict[str, tuple[float, ...]]


class FigureNoise(msgspec.Struct, frozen=True, kw_only=True):
    """A figure of healthy devices: its usual value, and the scatter between devices and between repeats as shares.

    `joint`: all devices measure it together.
    """

    test: str
    figure: str
    unit: str
    setting: str
    usual: float
    between: float
    repeat: float
    joint: bool = False


class FalseAlarms(msgspec.Struct, frozen=True, kw_only=True):
    """Simulated healthy nodes with the measured scatter: how many any limit of rates fails, or leaves inconclusive.

    `measured_platform`: judged with a baseline of twelve other such nodes, else with none. A missed limit is measured again in a
    real run, so these shares are upper bounds.
    """

    measured_platform: bool
    nodes: int
    failed: int
    inconclusive: int


class Ceiling(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """What a figure reached, the most that physics permits, and the product table's usual value and peak; 0: unknown."""

    test: str
    figure: str
    setting: str
    unit: str
    reached: float
    physical: float = 0.0
    words: str = ""
    table_usual: float = 0.0
    table_peak: float = 0.0


class FaultReport(msgspec.Struct, frozen=True, kw_only=True):
    """One injected fault, and what its test concluded.

    `device` had the fault, "" for the node. `accused` are the devices with the worst `outcome`; `right_device` is None for a
    fault of the node, or where the test does not apply.
    """

    test: str
    fault: str
    level: str
    device: str
    outcome: Outcome
    accused: tuple[str, ...]
    found: bool
    right_device: bool | None
    reason: str


class RoundingUse(msgspec.Struct, frozen=True, kw_only=True):
    """The largest error of right products as a share of one judge's rounding limit, over all devices and gates."""

    setting: str
    judge: str
    share: float
    devices: int


class DayDocument(msgspec.Struct, frozen=True, kw_only=True):
    """Everything measured in one session. Times are UTC seconds.

    `software` are the versions that results depend on, `facts` the node's settings as `software` compares them. `gate` is the last
    passed gate in full, which teaches baselines and goldens like any document of `run`; `goldens` are the digests on which all
    devices agree, by platform and work. `steps_failed` are errors of preflight itself.
    """

    version: int
    stages: tuple[StageReport, ...]
    ending: Ending
    node: str
    minutes: float
    started_at: float
    seconds: float
    devices: tuple[Device, ...]
    software: dict[str, str]
    facts: dict[str, Any]
    driver: NvmlRecording
    gates: tuple[GateRun, ...]
    figures: tuple[FigureScatter, ...]
    false_alarms: tuple[FalseAlarms, ...]
    ceilings: tuple[Ceiling, ...]
    faults: tuple[FaultReport, ...]
    rounding: tuple[RoundingUse, ...]
    goldens: dict[str, dict[str, str]]
    gate: Document | None

    @property
    def product(self) -> str:
        """The products of the devices; "" if none was found."""
        return " and ".join(sorted({device.product for device in self.devices if device.product}))

    @property
    def missed(self) -> tuple[FaultReport, ...]:
        """Injected faults that a test which applies here did not find, or found on another device."""
        return tuple(
            fault
            for fault in self.faults
            if fault.outcome is not Outcome.NOT_APPLICABLE and not (fault.found and fault.right_device is not False)
        )


def schema_text() -> str:
    """The schema of every file of this version, as published JSON text. A test keeps the file in `preflight/schemas` up to date."""
    return format_schema(build_record_schema(DayDocument, DAY_VERSION, "gpu-healthd measurements of a platform"))
