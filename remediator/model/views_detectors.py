"""API views of the controller's detectors: lemons and stragglers."""

from __future__ import annotations

import msgspec


class LemonView(msgspec.Struct, frozen=True, omit_defaults=True):
    """A suspected lemon. `score` is the probability that it is one, from 0 to 1, as of `at` (UTC s).

    `state` is watched, suspected or confirmed; `failures` are incidents in `hours` of service; `jobs` are on it now.
    """

    node: str
    score: float
    state: str
    failures: int
    hours: float
    why: str
    next_step: str
    since: float
    at: float
    jobs: tuple[str, ...] = ()
    incident: str = ""


class LemonList(msgspec.Struct, frozen=True):
    """`GET /v1/lemons`, the worst first."""

    lemons: tuple[LemonView, ...]


class StragglerView(msgspec.Struct, frozen=True, omit_defaults=True):
    """What slows a job down. `excess` 0.2 is a fifth more time than its peers need; `confidence` is from 0 to 1.

    Without a culprit, `node` is empty and `rank` is missing. `rank` is the first of `ranks`, `stage` its pipeline
    stage.
    """

    job: str
    attempt: int
    kind: str
    verdict: str
    since: float
    at: float
    node: str = ""
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    stage: int | None = None
    excess: float = 0.0
    confidence: float = 0.0
    incident: str = ""


class StragglerList(msgspec.Struct, frozen=True):
    """`GET /v1/stragglers`, the slowest first."""

    stragglers: tuple[StragglerView, ...]
