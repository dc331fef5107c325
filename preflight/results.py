"""Results of tests, and the document of a run. Frozen records, JSON."""

from __future__ import annotations

import enum

import msgspec

from preflight.check_context import Device

DOCUMENT_VERSION = 2
Evidence = dict[str, str | int | float | bool]
COUNTED = "failed_by_counters"  # in the evidence of a result that hardware counters or kernel lines made a failure


class Outcome(str, enum.Enum):
    """How one test ended. Only PASS is evidence of a healthy machine."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    HANG = "hang"  # did not end in time, unlike on a healthy machine
    NOT_APPLICABLE = "not_applicable"  # the machine lacks the tested part
    NOT_RUN = "not_run"  # blocked by an earlier event, or a missing prerequisite
    ERROR = "error"  # inconclusive


class Source(str, enum.Enum):
    """The source of an expectation."""

    EXACT = "exact"  # arithmetic, or a manufacturer's rule: only one value is correct
    PHYSICAL = "physical_limit"  # a share of the maximum rate of the link or memory
    SKU = "sku_table"
    SIBLINGS = "siblings"  # the other devices of this node, in this run
    FLEET = "fleet_median"
    HISTORY = "own_history"


class Expectation(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The expected range of a figure. One bound or both, in the figure's unit; `words` explains the bound.

    A figure outside of a bound is a failure, or only a remark if not `fails`.
    """

    source: Source
    words: str
    at_least: float | None = None
    at_most: float | None = None
    fails: bool = True


class Figure(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One measured number. `setting` is what it depends on (type, size, algorithm, ranks): figures compare only within it.

    `margin` is the distance to its tightest bound, as a share of that bound; negative if the bound is missed.
    """

    name: str
    value: float
    unit: str
    setting: str = ""
    expected: tuple[Expectation, ...] = ()
    margin: float | None = None


class Location(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The location of a fault, as precisely as the test can determine it."""

    gpu: str = ""  # UUID, or the device's name without one
    sm: int | None = None
    address: str = ""  # bytes from the start of the tested memory, hexadecimal; `page` names its pages
    page: str = ""
    link: int | None = None
    peer: str = ""  # the other end: a device of this node, or a node
    nic: str = ""
    path: str = ""  # a file system or a file


class CounterChange(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A hardware counter that changed during a test: `where` is a memory, or an NVLink. Names ending in `_ns` are durations."""

    name: str
    where: str = ""
    before: int
    after: int


class Result(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One test on one device. `misconfigured` marks a NOT_RUN that an operator must fix first.

    `by_limit` marks a FAIL or ERROR by a limit of rates or of rounding: a FAIL by one counts only on a measured platform.
    `remarks` are informative and change no verdict. `evidence` holds further data, as plain values. `counter_changes` are the
    counters of the GPU's hardware that changed while it ran.
    """

    test: str
    outcome: Outcome
    device: str = ""
    reason: str = ""
    seconds: float = 0.0
    figures: tuple[Figure, ...] = ()
    locations: tuple[Location, ...] = ()
    remarks: tuple[str, ...] = ()
    evidence: Evidence = {}
    misconfigured: bool = False
    by_limit: bool = False
    counter_changes: tuple[CounterChange, ...] = ()


class Verdict(str, enum.Enum):
    """The verdict of the whole run."""

    PASS = "pass"  # noqa: S105 - no password
    FAIL = "fail"
    INCONCLUSIVE = "inconclusive"
    MISCONFIGURED = "misconfigured"

    @property
    def exit_code(self) -> int:
        """0 pass, 1 fail, 2 misconfigured, 3 inconclusive."""
        return _EXIT_CODES[self]


_EXIT_CODES = {Verdict.PASS: 0, Verdict.FAIL: 1, Verdict.MISCONFIGURED: 2, Verdict.INCONCLUSIVE: 3}


class Document(msgspec.Struct, frozen=True, kw_only=True):
    """The result of a run. Times are UTC seconds; `reasons` are empty only for a pass, `reason` is their sentence.

    `complete` is false if tests of the level, or GPUs, were left out: a pass then covers only those that ran. `results` are those
    of the last of the `rounds`; all before it passed. `devices` are those that worked, at least initially, `software` the versions
    that results depend on.
    """

    version: int
    level: str
    node: str
    complete: bool
    rounds: int
    verdict: Verdict
    reason: str
    reasons: tuple[str, ...]
    injected: tuple[str, ...]
    started_at: float
    seconds: float
    devices: tuple[Device, ...]
    software: dict[str, str]
    results: tuple[Result, ...]
