"""What all ranks say of their collectives together: who gave wrong bits, who came late, whether all were slow. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Collection, Sequence

import msgspec

from preflight.check_context import Device
from preflight.device_comparison.pair_culprits import Pair, find_pair_culprits
from preflight.results import Location, Outcome, Result
from vocabulary.text.plurals import format_count

LATE_TIMES = 3.0  # as long as the others take for the same work, and
LATE_S = {True: 0.25, False: 0.02}  # so much longer: on the host, where others take the processor away; on a GPU
HOST_LEAST_GB_S = 0.002
UNOWNED = "unowned"  # in the evidence of who got wrong sums of which no part can be told to be wrong
PROOFS_MIN, TURNS_MIN = (
    4,
    2,
)  # wrong sums, and different places of the parts in them: what falls anywhere hits the same part often enough


def judge_collectives(results: Sequence[Result], devices: Sequence[Device]) -> list[Result]:
    """The results with the culprit alone failing where the arithmetic tells it, and every receiver failing where it doesn't."""
    names = [device.name for device in devices]
    judged = _judge_wrong_bits(results, names)
    if all("arrived_s" in result.evidence for result in results):
        judged = _judge_late_ranks(judged, on_host=all(device.on_host for device in devices))
    return [_judge_stalled_transfer(result) for result in judged]


def find_wrong_part_owners(wrong_sums: Sequence[tuple[int, Collection[int]]]) -> tuple[int, ...]:
    """Whose part was wrong in all wrong sums that one rank got, each given as its turn and the parts with wrong bits.

    Parts change places each turn. What is wrong with a part moves with it; a bit that is wrong on the way is another's each turn.
    Nobody, if there are too few sums to tell.
    """
    if len(wrong_sums) < PROOFS_MIN or len({turn for turn, _ in wrong_sums}) < TURNS_MIN:
        return ()
    return tuple(sorted(set.intersection(*(set(parts) for _, parts in wrong_sums))))


def _judge_wrong_bits(results: Sequence[Result], names: Sequence[str]) -> list[Result]:
    """Wrong bits that a rank finds even in its own part came from itself. Else pairs are compared, as those of links are."""
    cells = {
        (location.peer, result.device)
        for result in results
        if result.outcome is Outcome.FAIL and "arrived_s" in result.evidence
        for location in result.locations
    }
    own = sorted(sender for sender, receiver in cells if sender == receiver)
    if own and len(own) > max(1, len(names) // 4):
        return [_append_reason(r, "the parts of many are wrong; peer_links tells links apart") for r in results]
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
        reason = f"its part was wrong on {len(witnesses)} of {format_count(len(results), 'device')}; {said}"
        return msgspec.structs.replace(result, outcome=Outcome.FAIL, reason=reason, locations=(Location(gpu=name),))
    mine = [pair for pair in pairs if name in pair]
    if mine:
        words = ", ".join(f"{one} and {other}" for one, other in mine)
        return _append_reason(result, f"wrong between {words}; which end or the link this cannot tell", fails=True)
    if result.outcome is Outcome.FAIL and "arrived_s" in result.evidence:
        remark = f"not at fault here: {result.reason}"
        return msgspec.structs.replace(
            result, outcome=Outcome.PASS, reason="", locations=(), remarks=(*result.remarks, remark)
        )
    return result


def _mark_unattributed(result: Result) -> Result:
    if result.outcome is not Outcome.FAIL or not result.evidence.get(UNOWNED):
        return result
    reason = f"{result.reason}; the wrong bits move with no device's part, or are too few: whose fault it is this cannot tell"
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
            reason = f"it comes late: ready after {mine * 1e3:.0f} ms, the others after {usual * 1e3:.0f} ms for the same work"
            reason = f"{result.reason}; {reason}" if result.reason else reason
            judged.append(msgspec.structs.replace(result, outcome=Outcome.FAIL, reason=reason))
        else:
            judged.append(result)
    return judged


def _judge_stalled_transfer(result: Result) -> Result:
    """The host's processors move more than this, whatever else they do: nobody's expectation is needed to call it wrong."""
    slow = [f for f in result.figures if f.name == "bus_rate" and "gloo" in f.setting and f.value < HOST_LEAST_GB_S]
    if result.outcome is not Outcome.PASS or not slow:
        return result
    worst = min(slow, key=lambda figure: figure.value)
    reason = f"{worst.setting}: {worst.value:.2g} GB/s; all wait for one and this cannot tell for whom, peer_links may"
    return msgspec.structs.replace(result, outcome=Outcome.FAIL, reason=reason)
