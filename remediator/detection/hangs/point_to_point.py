"""Finds stuck sends and receives: each needs its partner, and the messages of a pair are matched in order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import NamedTuple

from remediator.detection.hangs.call_records import Operation, Snapshot, StuckCall, Transfer


class _TransferRoute(NamedTuple):
    group: str
    source: int
    target: int


class _TransferEnd(NamedTuple):
    """One end of a message."""

    call: Operation
    transfer: Transfer


_Halves = dict[
    _TransferRoute, tuple[list[_TransferEnd], list[_TransferEnd]]
]  # sends and receives, in the order of the calls


def find_stuck_transfers(snapshot: Snapshot) -> list[StuckCall]:
    """Find the first stuck message per pair, direction and group: with one end, with two different ones, or not moving."""
    ways: _Halves = {}
    for call in sorted((call for call in snapshot.operations if call.transfers), key=lambda call: call.order):
        for transfer in call.transfers:
            if call.rank in (transfer.source, transfer.target):
                way = _TransferRoute(call.group, transfer.source, transfer.target)
                ways.setdefault(way, ([], []))[call.rank == transfer.target].append(_TransferEnd(call, transfer))
    done_to = _last_completed_orders(snapshot.operations)
    found = (_judge_route(snapshot, way, halves, done_to) for way, halves in ways.items())
    return [stuck for stuck in found if stuck is not None]


def _last_completed_orders(calls: Iterable[Operation]) -> Mapping[tuple[int, str, int, int], int]:
    """Return the order of each rank's last completed call per direction: earlier calls are complete as well."""
    done: dict[tuple[int, str, int, int], int] = {}
    for call in calls:
        if call.state in ("completed", "ended"):
            for each in call.transfers:
                key = (call.rank, call.group, each.source, each.target)
                done[key] = max(call.order, done.get(key, -1))
    return done


def _judge_route(
    snapshot: Snapshot,
    way: _TransferRoute,
    halves: tuple[list[_TransferEnd], list[_TransferEnd]],
    done_to: Mapping[tuple[int, str, int, int], int],
) -> StuckCall | None:
    if way.source == way.target:
        return None
    shift = _match_offset(snapshot, way, *halves)
    for side, (mine, theirs) in enumerate((halves, halves[::-1])):
        rank, other = (way.target, way.source) if side else (way.source, way.target)
        first = next(
            (i for i, half in enumerate(mine) if half.call.open and half.call.order > done_to.get((rank, *way), -1)),
            None,
        )
        if first is None:
            continue
        at = first + (-shift if side else shift)
        partner = theirs[at] if 0 <= at < len(theirs) else None
        if partner is None:
            return _stuck_transfer(way, [mine[first]], absent=(other,))
        if partner.call.open:
            return _stuck_transfer(way, sorted((mine[first], partner), key=lambda half: half.call.rank))
        received = side == 0 and len(mine[first].call.transfers) == 1  # a send may end before it is received
        return _stuck_transfer(way, [mine[first]], unfinished={rank: 1} if received else {})
    return None


def _match_offset(
    snapshot: Snapshot, way: _TransferRoute, sends: list[_TransferEnd], receives: list[_TransferEnd]
) -> int:
    """Return the offset from a send's position to that of its receive.

    Both ends of a message end together, so for truncated records the first open ones are aligned. A call of several
    messages is open until the last has passed: there the times of the calls decide.
    """
    if {way.source, way.target} <= snapshot.whole or not sends or not receives:
        return 0
    at_end = len(receives) - len(sends)
    several = any(half.call.open and len(half.call.transfers) > 1 for half in (*sends, *receives))
    if several and sends[-1].call.created_ns and receives[-1].call.created_ns:
        return min((at_end, at_end - 1, at_end + 1), key=lambda shift: _pairing_spread_s(sends, receives, shift))
    return at_end + sum(half.call.open for half in sends) - sum(half.call.open for half in receives)


def _pairing_spread_s(sends: list[_TransferEnd], receives: list[_TransferEnd], shift: int) -> float:
    """Return how far apart the last of the paired calls were made, in seconds."""
    last = min(len(sends) - 1, len(receives) - 1 - shift)
    if last < 0 or last + shift < 0:
        return float("inf")
    return abs(sends[last].call.created_ns - receives[last + shift].call.created_ns) / 1e9


def _stuck_transfer(
    way: _TransferRoute,
    halves: list[_TransferEnd],
    absent: tuple[int, ...] = (),
    unfinished: Mapping[int, int] = MappingProxyType({}),
) -> StuckCall:
    first = halves[0].transfer
    unlike = len(halves) == 2 and (
        first.elements != halves[1].transfer.elements or first.dtype != halves[1].transfer.dtype
    )
    words = "; ".join(f"rank {h.call.rank}: {h.transfer.elements} {h.transfer.dtype}".rstrip() for h in halves)
    return StuckCall(
        group=way.group,
        number=halves[0].call.number,
        name=f"{'send' if halves[0].call.rank == way.source else 'recv'} {way.source}->{way.target}",
        waiting=tuple(half.call.rank for half in halves if half.call.rank not in unfinished),
        absent=absent,
        unfinished=unfinished,
        finished=len(unfinished),
        odd=tuple(half.call.rank for half in halves) if unlike else (),
        idle=tuple(half.call.rank for half in halves if half.call.state == "scheduled"),
        timed_out=tuple(half.call.rank for half in halves if half.call.timed_out),
        detail=words if unlike else "",
        orders={half.call.rank: half.call.order for half in halves},
    )
