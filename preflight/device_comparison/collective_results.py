"""Compares the collective results of all ranks: which rank sent wrong bits or arrived late, or whether all were slow. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence

import msgspec

from preflight.check_context import Device
from preflight.device_comparison.pair_culprits import Pair, find_pair_culprits
from preflight.results import Location, Outcome, Result
from vocabulary.text.plurals import format_count

LATE_TIMES = 3.0  # times as long as the others for the same work, and
LATE_S = {True: 0.25, False: 0.02}  # this much longer: on the host, where other processes take CPU time; on a GPU
HOST_LEAST_GB_S = 0.002
UNOWNED = "unowned"  # in the evidence of wrong sums that cannot be attributed to a part
PROOFS_MIN, TURNS_MIN = (
    4,
    2,
)  # wrong sums at different positions of the parts: the minimum to attribute them


def judge_collectives(results: Sequence[Result], devices: Sequence[Device]) -> list[Result]:
    """Only the culprit fails if it can be identified; otherwise every receiver fails."""
    names = [device.name for device in devices]
    judged = _judge_wrong_bits(results, names)
    if all("arrived_s" in result.evidence for result in results):
        judged = _judge_late_ranks(judged, on_host=all(device.on_host for device in devices))
    return [_judge_stalled_transfer(result) for result in judged]


def find_wrong_part_owners(wrong_sums: Sequence[tuple[int, Collection[int]]]) -> tuple[int, ...]:
    """The owner of all wrong sums that one rank received, each given as its turn and the parts with wrong bits.

    Parts rotate each turn. An error in a part moves with it; an error in transit hits another part each turn.
    Empty if there are too few sums.
    """
    if len(wrong_sums) < PROOFS_MIN or len({turn for turn, _ in wrong_sums}) < TURNS_MIN:
        return ()
    return tuple(sorted(set.intersection(*(set(parts) for _, parts in wrong_sums))))


def _judge_wrong_bits(results: Sequence[Result], names: Sequence[str]) -> list[Result]:
    """Wrong bits in a rank's own part are its own fault. Otherwise compare pairs, as for links."""
    cells = {
        (location.peer, result.device)
        for result in results
        if result.outcome is Outcome.FAIL and "arrived_s" in result.evidence
        for location in result.locations
    }
    own = sorted(sender for sender, receiver in cells if sender == receiver)
    if own and len(own) > max(1, len(names) // 4):
        return [
            _append_reason(r, "the contributions of many devices are wrong; run peer_links to test single links")
            for r in results
        ]
    named = own
    pairs: tuple[Pair, ...] = ()
    if not own:
        found = find_pair_culprits(cells, names)
        named, pairs = list(found.devices), found.pairs
    if not named and not pairs:
        return [_mark_unattributed(result) for result in results]
    return [_assign_fault(result, results, named, pairs) for result in results]


def _assign_fault(result: Result, results: Sequence[Result], named: Sequence[str], pairs: Sequence[Pair]) -> Result:
    name = result.device
    if name in named:
        witnesses = [r for r in results if any(location.peer == name for location in r.locations)]
        said = next((r.reason for r in witnesses if r.reason), result.reason)
        reason = f"its contribution was wrong on {len(witnesses)} of {format_count(len(results), 'device')}; {said}"
        return msgspec.structs.replace(result, outcome=Outcome.FAIL, reason=reason, locations=(Location(gpu=name),))
    mine = [pair for pair in pairs if name in pair]
    if mine:
        words = ", ".join(f"{one} and {other}" for one, other in mine)
        return _append_reason(
            result, f"wrong data between {words}; this test cannot tell the ends from the link", fails=True
        )
    if result.outcome is Outcome.FAIL and "arrived_s" in result.evidence:
        remark = f"not at fault here: {result.reason}"
        return msgspec.structs.replace(
            result, outcome=Outcome.PASS, reason="", locations=(), remarks=(*result.remarks, remark)
        )
    return result


def _mark_unattributed(result: Result) -> Result:
    if result.outcome is not Outcome.FAIL or not result.evidence.get(UNOWNED):
        return result
    reason = f"{result.reason}; the wrong bits follow no device's contribution, or are too few to name a device"
    return msgspec.structs.replace(result, outcome=Outcome.ERROR, reason=reason)


def _append_reason(result: Result, words: str, *, fails: bool = False) -> Result:
    if result.outcome is not Outcome.FAIL and not fails:
        return result
    reason = f"{result.reason}; {words}" if result.reason else words
    return msgspec.structs.replace(result, outcome=Outcome.FAIL, reason=reason)


def _judge_late_ranks(results: Sequence[Result], *, on_host: bool) -> list[Result]:
    seconds = {result.device: float(result.evidence["arrived_s"]) for result in results}
    judged = []
    for result in results:
        others = [value for name, value in seconds.items() if name != result.device]
        mine, usual = seconds[result.device], statistics.median(others) if others else 0.0
        if others and mine > LATE_TIMES * usual and mine - usual > LATE_S[on_host]:
            reason = (
                f"it is late: ready after {mine * 1e3:.0f} ms, the others after {usual * 1e3:.0f} ms for the same work"
            )
            reason = f"{result.reason}; {reason}" if result.reason else reason
            by_limit = result.outcome is not Outcome.FAIL
            judged.append(msgspec.structs.replace(result, outcome=Outcome.FAIL, reason=reason, by_limit=by_limit))
        else:
            judged.append(result)
    return judged


def _judge_stalled_transfer(result: Result) -> Result:
    """A rate so low that it is wrong on any host, without an expectation."""
    slow = [f for f in result.figures if f.name == "bus_rate" and "gloo" in f.setting and f.value < HOST_LEAST_GB_S]
    if result.outcome is not Outcome.PASS or not slow:
        return result
    worst = min(slow, key=lambda figure: figure.value)
    reason = f"{worst.setting}: {worst.value:.2g} GB/s; all devices wait for the slowest, which this test cannot name; run peer_links"
    return msgspec.structs.replace(result, outcome=Outcome.FAIL, reason=reason)
