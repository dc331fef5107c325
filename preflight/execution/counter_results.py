"""Joins conclusions from hardware counters with the results of the tests that they were read around. Pure."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from preflight.expectations.counter_changes import CounterFinding, describe_findings
from preflight.results import COUNTED, CounterChange, Location, Outcome, Result

TEST = "hardware_counters"  # names results about what no test covers: between the tests, and reading itself
_RANK = (Outcome.FAIL, Outcome.HANG, Outcome.ERROR)


class CounterConclusions(msgspec.Struct, frozen=True, kw_only=True):
    """What the counters of one device showed during one test; of the whole node if `device` is empty."""

    test: str
    device: str
    findings: tuple[CounterFinding, ...] = ()
    changes: tuple[CounterChange, ...] = ()


def add_counter_conclusions(results: Sequence[Result], conclusions: Sequence[CounterConclusions]) -> tuple[Result, ...]:
    """`results` with the conclusions: on the device's first result of the test, or as a new result at the test's end."""
    joined = list(results)
    for about in conclusions:
        if not about.findings and not about.changes:
            continue
        places = [place for place, result in enumerate(joined) if result.test == about.test]
        mine = [place for place in places if joined[place].device == about.device]
        if mine:
            joined[mine[0]] = _join_result(joined[mine[0]], about)
        elif any(finding.outcome is not Outcome.PASS for finding in about.findings):
            place = places[-1] + 1 if places else len(joined)
            blank = Result(test=about.test, outcome=Outcome.PASS, device=about.device)
            joined.insert(place, _join_result(blank, about))
    return tuple(joined)


def _join_result(result: Result, about: CounterConclusions) -> Result:
    """A failure of the hardware outweighs whatever the test found; inconclusive lines outweigh only a pass."""
    outcomes = {finding.outcome for finding in about.findings}
    worst = next((outcome for outcome in _RANK if outcome in outcomes), Outcome.PASS)
    outcome, reasons = result.outcome, [result.reason] if result.reason else []
    reasons += [words for each in _RANK if (words := describe_findings(about.findings, each))]
    if worst is Outcome.FAIL and outcome is not Outcome.HANG:
        outcome = Outcome.FAIL
    elif worst is not Outcome.PASS and outcome in (Outcome.PASS, Outcome.NOT_APPLICABLE):
        outcome = worst
    remark = describe_findings(about.findings, Outcome.PASS)
    failed = [finding for finding in about.findings if finding.outcome is Outcome.FAIL]
    links = dict.fromkeys(finding.link for finding in failed if finding.link is not None)
    places = tuple(Location(gpu=result.device, link=link) for link in links)
    return msgspec.structs.replace(
        result,
        outcome=outcome,
        reason="; ".join(reasons),
        misconfigured=result.misconfigured and outcome is Outcome.NOT_RUN,
        remarks=(*result.remarks, remark) if remark else result.remarks,
        locations=(*result.locations, *places),
        evidence=result.evidence | ({COUNTED: True} if failed else {}),
        counter_changes=(*result.counter_changes, *about.changes),
        by_limit=result.by_limit and not failed,
    )
