"""The launcher's events folded into one record per swap: what was lost, what replaced it, how it ended. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec.structs import replace

from vocabulary.messages.message_bounds import INT_MAX, MOMENT_MAX, NAME_CHARS_MAX, NUMBER_MAX
from vocabulary.messages.swap_messages import (
    LOST_RANKS_MAX,
    PHASES_MAX,
    REASON_CHARS_MAX,
    SWAPS_BYTES_MAX,
    SWAPS_PER_JOB_MAX,
    JobSwap,
    JobSwaps,
    LostRank,
    SwapOutcome,
)

_COMPLETED = frozenset({SwapOutcome.SWAPPED, SwapOutcome.SHRUNK, SwapOutcome.GROWN, SwapOutcome.RESUMED})
_SIZE_CHANGES = frozenset({"shrinking", "growing"})


class _Event(msgspec.Struct, frozen=True):
    """What swaps need of an event, whoever wrote it: the file may hold lines of other releases."""

    at: float
    event: str
    attempt: int = 0
    generation: int = -1
    rank: int = -1
    node: str = ""
    after: str = ""
    step: int | None = None
    lost: int | None = None
    source: str = ""
    seconds: float | None = None
    phases: dict[str, float] = {}
    ranks_before: int = 0
    text: str = ""


class SwapRecords:
    """The newest swaps of one job, oldest first."""

    def __init__(self, job: str) -> None:
        self._job = _text(job)
        self._swaps: list[JobSwap] = []

    @property
    def swaps(self) -> tuple[JobSwap, ...]:
        """Those that are kept."""
        return tuple(self._swaps)

    def message(self) -> JobSwaps:
        """Return what to send of them: as many of the newest as fit."""
        kept = self.swaps
        while kept and len(msgspec.json.encode(JobSwaps(self._job, kept))) > SWAPS_BYTES_MAX:
            kept = kept[1:]
        return JobSwaps(self._job, kept)

    def take(self, event: Mapping[str, Any]) -> bool:
        """Fold one event in; return whether it changed a swap. What cannot be read is skipped."""
        before = list(self._swaps)
        try:
            ranks = event.get("ranks")
            self._fold(msgspec.convert(event, _Event), ranks if isinstance(ranks, int) else 0)
        except (msgspec.ValidationError, UnicodeError):
            return False
        del self._swaps[:-SWAPS_PER_JOB_MAX]
        return self._swaps != before

    def _fold(self, event: _Event, ranks: int) -> None:
        kind = event.event
        if kind == "rank_lost":
            self._note_loss(self._open(event), event)
        elif kind == "rank_replaced":
            self._note_replacement(self._open(event), event)
        elif kind in _SIZE_CHANGES:
            self._set(replace(self._open(event), **_sizes(event, ranks), generation=_whole(event.generation)))
        elif kind in _COMPLETED:
            self._complete(self._open(event), event, ranks)
        elif kind in ("swap_impossible", "attempt_ended"):
            self._close(SwapOutcome.UNDER_WAY, SwapOutcome.GIVEN_UP, _text(event.text, REASON_CHARS_MAX))
        elif kind == "attempt_started":
            self._close(SwapOutcome.UNDER_WAY, SwapOutcome.GIVEN_UP, "")
            self._close(SwapOutcome.GIVEN_UP, SwapOutcome.RESTARTED, None)

    def _open(self, event: _Event) -> JobSwap:
        """Return the swap under way, or begin one."""
        if not self._swaps or self._swaps[-1].outcome != SwapOutcome.UNDER_WAY:
            began = event.at - (_number(event.seconds or 0.0) or 0.0)
            at = min(max(0.0, began), MOMENT_MAX)
            attempt = _whole(event.attempt)
            self._swaps.append(JobSwap(job=self._job, attempt=attempt, at=at, outcome=SwapOutcome.UNDER_WAY.value))
        return self._swaps[-1]

    def _set(self, swap: JobSwap) -> None:
        self._swaps[-1] = swap

    def _note_loss(self, swap: JobSwap, event: _Event) -> None:
        lost = (*swap.lost, LostRank(_whole(event.rank), _text(event.node)))[:LOST_RANKS_MAX]
        self._set(replace(swap, lost=lost, lost_ranks=swap.lost_ranks + 1))

    def _note_replacement(self, swap: JobSwap, event: _Event) -> None:
        """The newest loss of this rank has a successor; one that is lost in turn has another entry."""
        lost = list(swap.lost)
        for place in reversed(range(len(lost))):
            if lost[place].rank == event.rank:
                lost[place] = replace(lost[place], after=_text(event.after))
                break
        self._set(replace(swap, lost=tuple(lost), generation=_whole(event.generation)))

    def _complete(self, swap: JobSwap, event: _Event, ranks: int) -> None:
        phases = [(_text(name, 64), _number(each)) for name, each in event.phases.items()]
        done = replace(
            swap,
            outcome=event.event,
            generation=_whole(event.generation),
            seconds=None if event.seconds is None else _number(event.seconds),
            phases={name: each for name, each in phases[:PHASES_MAX] if each is not None},
            lost_steps=None if event.lost is None else _whole(event.lost),
            step=None if event.step is None else _whole(event.step),
            source=_text(event.source),
            **_sizes(event, ranks),
        )
        self._set(done)

    def _close(self, before: SwapOutcome, after: SwapOutcome, reason: str | None) -> None:
        """The newest swap ends otherwise, if that was its outcome; `reason` None leaves the one that it has."""
        if self._swaps and self._swaps[-1].outcome == before:
            newest = self._swaps[-1]
            reason = newest.reason if reason is None else reason
            self._set(replace(newest, outcome=after.value, reason=reason))


def _sizes(event: _Event, ranks: int) -> dict[str, int]:
    return {"ranks": _count(ranks), "ranks_before": _count(event.ranks_before)}


def _text(text: str, most: int = NAME_CHARS_MAX) -> str:
    return text.replace("\0", "\N{SYMBOL FOR NULL}")[:most].encode(errors="replace").decode()


def _whole(number: int) -> int:
    return min(max(-INT_MAX, number), INT_MAX)


def _count(number: int) -> int:
    return min(max(0, number), INT_MAX)


def _number(number: float) -> float | None:
    return min(max(-NUMBER_MAX, number), NUMBER_MAX) if math.isfinite(number) else None
