"""What the process of the pretended nodes tells when it ends: every answer's time, what was refused, what it sent."""

from __future__ import annotations

import time
from array import array
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec

from vocabulary.finding import Finding

KINDS = ("report", "news", "poll")


class Sent(msgspec.Struct):
    """A finding as it was last told, and whether the controller said that it has it."""

    node: str
    kind: str
    component: str
    active: bool
    acknowledged: bool
    told: int = 1  # how often, counting repetitions after an answer that was lost


class Tally(msgspec.Struct):
    """Small figures of a whole run. Times are monotonic seconds, `own_delay_s` is how late the process itself was."""

    began_at: float
    ended_at: float = 0.0
    cpu_s: float = 0.0
    own_delay_s: tuple[float, ...] = ()  # p50, p99, most
    gaps: list[tuple[float, float]] = []  # nobody led
    failed: dict[str, int] = {}
    dripped: dict[str, int] = {}
    malformed: dict[str, int] = {}
    findings: dict[str, Sent] = {}


class Took(NamedTuple):
    """Of one kind of request: when each was due, and how long until its answer was there, monotonic seconds."""

    begun: array[float]
    took: array[float]


class Outcome:
    """Filled while the load runs."""

    def __init__(self) -> None:
        self.tally = Tally(began_at=time.monotonic())
        self.failed: Counter[str] = Counter()
        self.dripped: Counter[str] = Counter()
        self.malformed: Counter[str] = Counter()
        self.took = {kind: Took(array("d"), array("d")) for kind in KINDS}

    def answered(self, kind: str, begun: float) -> None:
        """A request that was begun then has its answer now."""
        took = self.took[kind]
        took.begun.append(begun)
        took.took.append(time.monotonic() - begun)

    def told(self, finding: Finding) -> None:
        """A finding goes out, new or once more."""
        before = self.tally.findings.get(finding.id)
        told = 1 if before is None else before.told + 1
        sent = Sent(finding.node, finding.kind, finding.component.key, finding.active, acknowledged=False, told=told)
        self.tally.findings[finding.id] = sent

    def acknowledged(self, finding: Finding) -> None:
        """The controller has it, as it was told last."""
        self.tally.findings[finding.id].acknowledged = True

    def write(self, place: Path) -> None:
        """Into files of a directory."""
        tally = self.tally
        tally.ended_at, tally.cpu_s = time.monotonic(), time.process_time()
        tally.failed, tally.dripped, tally.malformed = dict(self.failed), dict(self.dripped), dict(self.malformed)
        for kind, took in self.took.items():
            with (place / f"{kind}.took").open("wb") as out:
                took.begun.tofile(out)
                took.took.tofile(out)
        (place / "tally.json").write_bytes(msgspec.json.encode(tally))


def read_outcome(place: Path) -> tuple[Tally, dict[str, Took]]:
    """What was written there."""
    tally = msgspec.json.decode((place / "tally.json").read_bytes(), type=Tally)
    return tally, {kind: _took(place / f"{kind}.took") for kind in KINDS}


def _took(file: Path) -> Took:
    whole = array("d", file.read_bytes())
    half = len(whole) // 2
    return Took(whole[:half], whole[half:])
