"""The parts of a preflight's result document that findings need. Any version; other fields are ignored."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta

TEXT_MAX = 300
RESULTS_MAX = 10_000
PLACES_MAX = 64
FAULTS_MAX = 100
AT_MAX = 1e11  # UTC seconds: some three thousand years

Name = Annotated[str, Meta(max_length=253)]


class Location(msgspec.Struct, frozen=True):
    """The location of a fault."""

    gpu: Name = ""
    link: Annotated[int, Meta(ge=0, le=1000)] | None = None
    nic: Name = ""


class Result(msgspec.Struct, frozen=True):
    """One test on one device; `outcome` is, for example, ``fail`` or ``hang``."""

    test: Name
    outcome: Name
    device: Name = ""
    reason: str = ""
    locations: Annotated[tuple[Location, ...], Meta(max_length=PLACES_MAX)] = ()


class PreflightSample(msgspec.Struct, frozen=True):
    """One document. `complete` is false if tests of the level were left out, or if the document does not say."""

    verdict: str
    level: str
    started_at: Annotated[float, Meta(ge=0, le=AT_MAX)] = 0.0
    complete: bool = False
    reason: str = ""
    injected: Annotated[tuple[str, ...], Meta(max_length=FAULTS_MAX)] = ()
    results: Annotated[tuple[Result, ...], Meta(max_length=RESULTS_MAX)] = ()

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"not a preflight verdict: {self.verdict[:40]!r}; use one of {', '.join(VERDICTS)}")
        if self.level not in LEVELS:
            raise ValueError(f"not a preflight level: {self.level[:40]!r}; use one of {', '.join(LEVELS)}")


LEVELS = ("gate", "standard", "group", "burn-in")  # a failure at one level outweighs failures at those before it
VERDICTS = ("pass", "fail", "inconclusive", "misconfigured")
