"""Finds devices that compute different bits: devices of one platform must agree exactly, also with golden digests. Pure.

Only devices that passed on their own take part, and only those of equal platforms are compared. Naming a culprit takes a
golden digest, or three devices of which a majority agrees with each other against it. Otherwise at least one of the
differing devices is wrong, but unknown: none of them passes, and none is named. If devices agree on bits that fail each
device's own verification, the library or the verification is wrong, not a device. Verification alone, without another
device's bits or a golden digest, fails none: its rounding limits were calculated, not measured.
"""

from __future__ import annotations

import enum
from collections import Counter
from collections.abc import Mapping, Sequence

import msgspec

from preflight.check_context import Device
from preflight.device_comparison.device_digests import ComputedDigests, parse_computed_digests
from preflight.results import Evidence, Location, Outcome, Result

VOTERS_MIN = 3
WORKS_LISTED = 3


class VoteResult(enum.Enum):
    """How one device's bits for one work compare with other devices and the golden digest."""

    RIGHT = "right"
    WRONG_BY_GOLDEN = "wrong by golden"
    WRONG_BY_MAJORITY = "wrong by majority"
    OPEN = "open"  # it differs from another device, and the wrong one is unknown
    STALE = "stale"  # all devices agree, but not with the golden digest
    ALONE = "alone"  # nothing to compare with


def vote_on_digests(digests: Mapping[str, str], golden: str = "") -> dict[str, VoteResult]:
    """Vote on each device's digest of the same work on the same platform; `golden` is empty if unknown.

    A golden digest decides, unless a majority of at least three contradicts it: then one of the two is wrong, and every device
    that differs from either stays open.
    """
    if not digests:
        return {}
    counted = Counter(digests.values())
    common, many = counted.most_common(1)[0]
    majority = common if len(digests) >= VOTERS_MIN and 2 * many > len(digests) else ""
    if golden in counted and (majority in {"", golden}):
        return {
            who: VoteResult.RIGHT if digest == golden else VoteResult.WRONG_BY_GOLDEN for who, digest in digests.items()
        }
    if len(counted) == 1 and len(digests) > 1:
        return dict.fromkeys(digests, VoteResult.STALE if golden else VoteResult.RIGHT)
    if len(digests) == 1:
        return dict.fromkeys(digests, VoteResult.WRONG_BY_GOLDEN if golden else VoteResult.ALONE)
    if majority and golden not in counted:
        agree = VoteResult.STALE if golden else VoteResult.RIGHT
        return {who: agree if digest == majority else VoteResult.WRONG_BY_MAJORITY for who, digest in digests.items()}
    return dict.fromkeys(digests, VoteResult.OPEN)


class VoteSummary(msgspec.Struct, frozen=True):
    """One device's works by result, the devices compared with it, and the parties."""

    works: Mapping[VoteResult, tuple[str, ...]]
    others: tuple[str, ...]
    parties: str  # of the first open work: which devices agree with which


def judge_by_majority(results: Sequence[Result], devices: Sequence[Device] = ()) -> tuple[Result, ...]:  # noqa: ARG001 - as all of its kind
    """The same results; contradicted devices no longer pass, devices that share a refusal no longer fail."""
    told = {
        number: found
        for number, result in enumerate(results)
        if result.outcome is Outcome.PASS and (found := parse_computed_digests(result)) is not None
    }
    names = {number: results[number].device for number in told}
    heard = {number: _collect_votes(number, told, names) for number in told}
    judged = [
        _fail_refused_types(_apply_votes(result, told[number], heard[number]), told[number], told, names)
        if number in told
        else result
        for number, result in enumerate(results)
    ]
    return _doubt_lone_refusals(_excuse_shared_refusals(judged, tuple(told.values())), tuple(told.values()))


def _collect_votes(number: int, told: Mapping[int, ComputedDigests], names: Mapping[int, str]) -> VoteSummary:
    mine = told[number]
    peers = {other: found for other, found in told.items() if other == number or _share_platform(mine, found)}
    by: dict[VoteResult, list[str]] = {}
    compared: set[int] = set()
    parties = ""
    for work in mine.digests:
        digests = {str(other): found.digests[work] for other, found in peers.items() if work in found.digests}
        said = vote_on_digests(digests, mine.goldens.get(work, ""))[str(number)]
        by.setdefault(said, []).append(work)
        compared |= {int(other) for other in digests} - {number}
        if said is VoteResult.OPEN and not parties:
            parties = _group_by_digest({names[int(other)]: digest for other, digest in digests.items()})
    others = tuple(names[other] for other in sorted(compared))
    return VoteSummary({said: tuple(works) for said, works in by.items()}, others, parties)


def _group_by_digest(digests: Mapping[str, str]) -> str:
    """Groups with equal bits, as `cuda:0, cuda:2 against cuda:1`; the largest first."""
    parties: dict[str, list[str]] = {}
    for who, digest in digests.items():
        parties.setdefault(digest, []).append(who)
    return " against ".join(", ".join(party) for party in sorted(parties.values(), key=lambda each: (-len(each), each)))


def _apply_votes(result: Result, mine: ComputedDigests, heard: VoteSummary) -> Result:
    remarks = (*result.remarks, *_build_remarks(mine, heard))
    evidence: Evidence = result.evidence | ({"compared_with": ", ".join(heard.others)} if heard.others else {})
    wrong = [*heard.works.get(VoteResult.WRONG_BY_GOLDEN, ()), *heard.works.get(VoteResult.WRONG_BY_MAJORITY, ())]
    outcome, reason = result.outcome, result.reason
    if wrong:
        who = _describe_accuser(heard)
        reason = f"its bits differ from {who} in {_format_work_list(wrong)}, the same way in every repeat: it computes reproducibly wrong results"
        outcome = Outcome.FAIL
        evidence = evidence | {"wrong_works": len(wrong), "first_wrong": f"{wrong[0]}: {mine.digests[wrong[0]]}"}
    elif differs := heard.works.get(VoteResult.OPEN, ()):
        outcome, reason = Outcome.ERROR, _open_reason(heard.parties, differs)
    return msgspec.structs.replace(result, outcome=outcome, reason=reason, remarks=remarks, evidence=evidence)


def _fail_refused_types(
    result: Result, mine: ComputedDigests, told: Mapping[int, ComputedDigests], names: Mapping[int, str]
) -> Result:
    """Fail a device whose library refuses a type that another device of the same platform supports."""
    having: dict[tuple[str, ...], list[str]] = {}
    for kind in mine.refused:
        if of := tuple(
            names[number] for number, found in told.items() if _share_platform(mine, found) and found.has(kind)
        ):
            having.setdefault(of, []).append(kind)
    lacks = [f"{', '.join(kinds)}, which {', '.join(of)} of the same platform computed" for of, kinds in having.items()]
    if not lacks:
        return result
    reason = f"its library refuses {'; '.join(lacks)}" + (f"; {result.reason}" if result.reason else "")
    where = (Location(gpu=result.device),)
    return msgspec.structs.replace(result, outcome=Outcome.FAIL, reason=reason, locations=result.locations or where)


def _share_platform(one: ComputedDigests, other: ComputedDigests) -> bool:
    return one.votes and other.votes and one.platform == other.platform


def _excuse_shared_refusals(results: Sequence[Result], passed: Sequence[ComputedDigests]) -> tuple[Result, ...]:
    """Make failures open if every refused work has the same bits on another device, and is refused there too.

    Not if a golden digest, or a device that `passed` on its own, has other bits: then the library works, and these devices fail.
    """
    refused = {
        number: found
        for number, result in enumerate(results)
        if result.outcome is Outcome.FAIL
        and (found := parse_computed_digests(result)) is not None
        and found.objected
        and found.votes
    }
    excused = list(results)
    for number, mine in refused.items():
        alike = [
            {other for other, found in refused.items() if other != number and _share_objection(mine, found, work)}
            for work in mine.objected
        ]
        if all(alike) and not _is_contradicted(mine, passed):
            names = sorted(results[other].device for other in {number}.union(*alike))
            reason = (
                f"{', '.join(names)} compute the same bits, and the verification on each rejects them: the library or the rounding limits "
                f"are wrong, not a device; {results[number].reason}"
            )
            excused[number] = msgspec.structs.replace(
                results[number], outcome=Outcome.ERROR, reason=reason, locations=()
            )
    return tuple(excused)


def _doubt_lone_refusals(results: Sequence[Result], passed: Sequence[ComputedDigests]) -> tuple[Result, ...]:
    """Make failures by verification alone inconclusive without a golden digest or a device that passed the same work.

    A device that passed with the same bits counts, too: then this device verifies wrong.
    """
    judged = list(results)
    for number, result in enumerate(results):
        mine = parse_computed_digests(result) if result.outcome is Outcome.FAIL and result.by_limit else None
        if mine is not None and mine.objected and not _has_second_word(mine, passed):
            reason = (
                f"{result.reason}. No other device and no golden digest confirms this: record goldens from other nodes"
                " (python -m preflight goldens record) and run again"
            )
            judged[number] = msgspec.structs.replace(result, outcome=Outcome.ERROR, reason=reason, by_limit=False)
    return tuple(judged)


def _is_contradicted(mine: ComputedDigests, passed: Sequence[ComputedDigests]) -> bool:
    """Whether a golden digest or another device contradicts any of the refused works."""
    comparable = [found for found in passed if _share_platform(mine, found)]
    known = [mine.goldens, *(found.digests for found in comparable)]
    return any(of.get(work, mine.digests.get(work)) != mine.digests.get(work) for work in mine.objected for of in known)


def _has_second_word(mine: ComputedDigests, passed: Sequence[ComputedDigests]) -> bool:
    """Whether a golden digest differs in a refused work, or a device that passed has computed one."""
    theirs = [found.digests for found in passed if _share_platform(mine, found)]
    golden_differs = any(
        mine.goldens.get(work, mine.digests.get(work)) != mine.digests.get(work) for work in mine.objected
    )
    return golden_differs or any(work in of for work in mine.objected for of in theirs)


def _share_objection(mine: ComputedDigests, other: ComputedDigests, work: str) -> bool:
    return (
        other.platform == mine.platform
        and work in other.objected
        and work in mine.digests
        and other.digests.get(work) == mine.digests[work]
    )


def _describe_accuser(heard: VoteSummary) -> str:
    if VoteResult.WRONG_BY_MAJORITY not in heard.works:
        return "the golden digests recorded for its platform"
    also = " and the golden digests" if VoteResult.WRONG_BY_GOLDEN in heard.works else ""
    return f"most of {', '.join(heard.others)}{also}"


def _open_reason(parties: str, works: Sequence[str]) -> str:
    return (
        f"the bits differ in {_format_work_list(works)}, {parties}: at least one computes wrong results, and neither checksums, nor the second opinion, "
        "nor a majority shows which; record goldens from other nodes (python -m preflight goldens record) and run again"
    )


def _build_remarks(mine: ComputedDigests, heard: VoteSummary) -> list[str]:
    remarks = []
    if stale := heard.works.get(VoteResult.STALE, ()):
        remarks.append(
            f"these devices agree with each other but not with the golden digests in {_format_work_list(stale)}: either the goldens were recorded on another "
            "platform, or all these devices are wrong in the same way; record the goldens again from other nodes"
        )
    if alone := heard.works.get(VoteResult.ALONE, ()):
        why = (
            "no other device of its platform passed its own verification"
            if mine.votes
            else "a MIG instance does not vote"
        )
        remarks.append(
            f"{why}, and there are no golden digests: {_format_work_list(alone)} verified only by repeats, checksums and the second opinion"
        )
    return remarks


def _format_work_list(works: Sequence[str]) -> str:
    more = f" and {len(works) - WORKS_LISTED} more" if len(works) > WORKS_LISTED else ""
    return ", ".join(works[:WORKS_LISTED]) + more
