"""What a preflight's document says, as far as findings are made of it. Any version; what is not listed is passed over."""

from __future__ import annotations

import msgspec

TEXT_MAX = 300


class Location(msgspec.Struct, frozen=True):
    """Where a fault sits."""

    gpu: str = ""
    link: int | None = None
    nic: str = ""


class Result(msgspec.Struct, frozen=True):
    """One test on one device; `outcome` is a word such as ``fail`` or ``hang``."""

    test: str
    outcome: str
    device: str = ""
    reason: str = ""
    locations: tuple[Location, ...] = ()


class PreflightSample(msgspec.Struct, frozen=True):
    """One document. `complete` is false where tests of the level were left out; a document without the word is not taken for whole."""

    verdict: str
    level: str
    started_at: float = 0.0
    complete: bool = False
    reason: str = ""
    injected: tuple[str, ...] = ()
    results: tuple[Result, ...] = ()

    def __post_init__(self) -> None:
        if self.verdict not in VERDICTS:
            raise ValueError(f"no verdict of a preflight: {self.verdict[:40]!r}; there is {', '.join(VERDICTS)}")


VERDICTS = ("pass", "fail", "inconclusive", "misconfigured")
