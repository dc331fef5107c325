"""A heartbeat: a node's report that differs from its last accepted one only in what its ranks have done since.

Nearly all reports of a fleet are of this kind. A heartbeat names the report that it updates and packs the rest: a node
with eight ranks sends less than a kilobyte instead of nine. The controller answers 409 if it does not have that report,
and the node then sends a whole one. Pure.

The records are little endian. One rank: step (int64), time of its beacon (float64, UTC s), newest and median step time
(float64, s), its phase, section and stack as indices into `words`, and its number of new windows (uint8 each). Median
section times follow as float32 in the order of the report's `sections_median`. One window: `first` divided by `size`
(uint32), `steps` (uint16), the binary logarithm of `size` (uint8), a zero, and its six times and tokens (float32; NaN:
not reported), which are read with healthd's own six decimals. Times of single steps by section are left out.
"""

from __future__ import annotations

import math
import struct
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from operator import attrgetter
from typing import Annotated

import msgspec
from msgspec.structs import replace

from vocabulary.messages.message_bounds import RANKS_MAX, WINDOWS_MAX, Count, Moment, Word
from vocabulary.messages.wire import RankStatus, Report, StepWindow, WireError

HEARTBEAT_VERSION = 1
DECIMALS = 6
RANK = struct.Struct("<qdddBBBB")
WINDOW = struct.Struct("<IHBx6f")
SINGLE = struct.Struct("<f")
_RANK_BYTES = RANK.size
_PHASE, _SECTION, _STACK, _WINDOWS = range(32, 36)  # bytes of a rank's record
_WORDS_MAX = 64
EXPONENT_MAX = 20  # a window of a million steps; the largest `first` is then below 2**52

RankKey = tuple[str, int, int, int]  # job, attempt, rank, pid
_key = attrgetter("job", "attempt", "rank", "pid")
_unchanging = attrgetter(
    "job",
    "attempt",
    "rank",
    "pid",
    "world",
    "alive",
    "role",
    "pipeline_stage",
    "tensor_group",
    "data_group",
    "expert_group",
    "gpu",
    "digests",
)
_of_node = attrgetter("version", "node", "boot_id", "agent", "ttl_s", "health", "gpus", "versions", "swaps")
_values = attrgetter("step_s", "forward_s", "backward_s", "communication_s", "data_s", "tokens")


class Heartbeat(msgspec.Struct, frozen=True, array_like=True, gc=False):  # plain data, never in a cycle
    """One heartbeat; an array in MessagePack. `base` is the number of the report that it updates."""

    version: Count
    agent: Word
    base: Count
    seq: Count
    sent_at: Moment
    words: Annotated[tuple[Word, ...], msgspec.Meta(max_length=_WORDS_MAX)]
    ranks: Annotated[bytes, msgspec.Meta(max_length=RANKS_MAX * RANK.size)]
    sections: Annotated[bytes, msgspec.Meta(max_length=1 << 20)]
    windows: Annotated[bytes, msgspec.Meta(max_length=RANKS_MAX * WINDOWS_MAX * WINDOW.size)]


_decode = msgspec.msgpack.Decoder(Heartbeat).decode


def build_heartbeat(base: Report, report: Report, received: Mapping[RankKey, StepWindow]) -> Heartbeat | None:
    """Return `report` as a heartbeat, or None if it differs from `base` in more than the progress of its ranks.

    Args:
        base: the last whole report that the controller accepted from this agent.
        report: the node's state now.
        received: the newest window of each rank that the controller has.
    """
    if report.changes or report.telemetry is not msgspec.UNSET or not _stands_still(base, report):
        return None
    new = [_windows_after(rank.windows, received.get(_key(rank))) for rank in report.ranks]
    return _pack(report, base.seq, new)


def pack_progress(report: Report) -> Heartbeat | None:
    """Return what a whole report says of its ranks' progress, without windows; None if it has no place in the records."""
    return _pack(report, report.seq, [()] * len(report.ranks))


def _pack(report: Report, base: int, new: Sequence[Sequence[StepWindow]]) -> Heartbeat | None:
    """Pack the progress of the ranks, with these windows of each."""
    places: dict[str, int] = {}
    ranks, sections, windows = bytearray(), bytearray(), bytearray()
    try:
        for rank, own in zip(report.ranks, new, strict=True):
            words = [places.setdefault(word, len(places)) for word in (rank.phase, rank.section, rank.stack)]
            ranks += RANK.pack(rank.step, rank.at, rank.step_seconds, rank.step_median, *words, len(own))
            sections += b"".join(map(SINGLE.pack, rank.sections_median.values()))
            windows += b"".join(map(_pack_window, own))
    except (struct.error, OverflowError, ValueError):  # a value that has no place in the record
        return None
    if len(places) > _WORDS_MAX:
        return None
    sent = (report.agent, base, report.seq, report.sent_at)
    return Heartbeat(HEARTBEAT_VERSION, *sent, tuple(places), bytes(ranks), bytes(sections), bytes(windows))


def newest_windows(report: Report) -> dict[RankKey, StepWindow]:
    """Return the newest window of each rank that has one."""
    return {_key(rank): rank.windows[-1] for rank in report.ranks if rank.windows}


def encode_heartbeat(heartbeat: Heartbeat) -> bytes | None:
    """Encode as MessagePack; None if a text breaks a bound, which a whole report can cut."""
    try:
        packed = msgspec.msgpack.encode(heartbeat)
        decode_heartbeat(packed)
    except (UnicodeEncodeError, WireError):
        return None
    return packed


def decode_heartbeat(data: bytes) -> Heartbeat:
    """Parse a heartbeat. Whether its records fit the report that it names, `fits_report` tells.

    Raises:
        WireError: it is not a heartbeat, is newer than this program, or breaks a bound.
    """
    try:
        found = _decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(f"Heartbeat: {error}") from error
    if found.version > HEARTBEAT_VERSION:
        raise WireError(f"Heartbeat: version {found.version}, this controller supports up to {HEARTBEAT_VERSION}")
    if "\0" in "".join(found.words):
        raise WireError("Heartbeat: a text holds the character NUL")
    ranks = found.ranks
    if len(ranks) % _RANK_BYTES or len(found.sections) % SINGLE.size:
        raise WireError("Heartbeat: a record of ranks or sections is incomplete")
    if len(found.windows) != WINDOW.size * sum(ranks[_WINDOWS::_RANK_BYTES]):
        raise WireError("Heartbeat: the windows are not as many as the ranks say")
    named = ranks[_PHASE::_RANK_BYTES] + ranks[_SECTION::_RANK_BYTES] + ranks[_STACK::_RANK_BYTES]
    if named and max(named) >= len(found.words):
        raise WireError(f"Heartbeat: a rank names a word beyond the {len(found.words)} that it brings")
    return found


def fits_report(heartbeat: Heartbeat, ranks: int, sections: int) -> bool:
    """Return whether the records are those of a report with so many ranks and median section times."""
    return len(heartbeat.ranks) == ranks * RANK.size and len(heartbeat.sections) == sections * SINGLE.size


def apply_heartbeat(ranks: Sequence[RankStatus], heartbeat: Heartbeat) -> list[RankStatus]:
    """Return a report's ranks as the heartbeat says they are now, without windows and single steps' sections."""
    sections = (round(finite(value), DECIMALS) for (value,) in SINGLE.iter_unpack(heartbeat.sections))
    words = heartbeat.words
    return [
        replace(
            rank,
            step=step,
            at=finite(at),
            step_seconds=finite(newest),
            step_median=finite(median),
            phase=words[phase],
            section=words[section],
            stack=words[stack],
            sections={},
            sections_median={name: next(sections) for name in rank.sections_median},
            windows=(),
        )
        for rank, (step, at, newest, median, phase, section, stack, _) in zip(
            ranks, RANK.iter_unpack(heartbeat.ranks), strict=True
        )
    ]


def strip_rank_progress(ranks: Sequence[RankStatus]) -> tuple[RankStatus, ...]:
    """Return the ranks without what every heartbeat brings, and with equal texts shared: a fleet has 100 000."""
    return tuple(
        [
            replace(
                rank,
                job=sys.intern(rank.job),
                gpu=sys.intern(rank.gpu),
                role=sys.intern(rank.role),
                step=0,
                at=0.0,
                step_seconds=0.0,
                step_median=0.0,
                phase="",
                section="",
                stack="",
                sections=_section_names(()),
                sections_median=_section_names(tuple(rank.sections_median)),
                windows=(),
            )
            for rank in ranks
        ]
    )


@lru_cache(maxsize=256)
def _section_names(names: tuple[str, ...]) -> dict[str, float]:
    return dict.fromkeys(names, 0.0)


def read_windows(heartbeat: Heartbeat) -> Iterator[tuple[StepWindow, ...]]:
    """Yield the new windows of each rank in turn, oldest first."""
    told = WINDOW.iter_unpack(heartbeat.windows)
    for count in heartbeat.ranks[_WINDOWS::_RANK_BYTES]:
        yield tuple([_unpack_window(next(told)) for _ in range(count)])


def _stands_still(base: Report, report: Report) -> bool:
    if len(base.ranks) != len(report.ranks) or _of_node(base) != _of_node(report):
        return False
    if {finding.id for finding in base.active} != {finding.id for finding in report.active}:
        return False
    return all(
        _unchanging(before) == _unchanging(rank) and list(before.sections_median) == list(rank.sections_median)
        for before, rank in zip(base.ranks, report.ranks, strict=True)
    )


def _windows_after(windows: tuple[StepWindow, ...], last: StepWindow | None) -> tuple[StepWindow, ...]:
    """Return what follows the last received window; all, where it is no longer there. A job may go back in its steps."""
    for place in range(len(windows) - 1, -1, -1):
        if windows[place] == last:
            return windows[place + 1 :]
    return windows


def _pack_window(window: StepWindow) -> bytes:
    number, rest = divmod(window.first, window.size)
    if rest or window.size.bit_count() != 1 or window.size > 1 << EXPONENT_MAX:
        raise ValueError("a window whose size is no power of two, or that does not begin at a multiple of it")
    values = [math.nan if value is None else value for value in _values(window)]
    return WINDOW.pack(number, window.steps, window.size.bit_length() - 1, *values)


def _unpack_window(told: tuple[int, int, int, float, float, float, float, float, float]) -> StepWindow:
    number, steps, exponent, whole, *parts = told
    size = 1 << min(exponent, EXPONENT_MAX)
    values = [round(value, DECIMALS) if math.isfinite(value) else None for value in parts]
    return StepWindow(number * size, size, steps, round(finite(whole), DECIMALS), *values)


def finite(value: float) -> float:
    """Return the value, or zero for one that is not a number that JSON has."""
    return value if math.isfinite(value) else 0.0
