from __future__ import annotations

import pytest

from preflight.execution.counter_results import TEST, CounterConclusions, add_counter_conclusions
from preflight.expectations.counter_changes import CounterFinding
from preflight.results import COUNTED, CounterChange, Location, Outcome, Result

CHANGE = CounterChange(name="ecc_uncorrected", where="dram", before=0, after=1)
BAD = CounterFinding(outcome=Outcome.FAIL, words="a double-bit error", name="ecc_uncorrected", where="dram")
OPEN = CounterFinding(outcome=Outcome.ERROR, words="an Xid that nobody knows", name="xid_999")
NOTED = CounterFinding(outcome=Outcome.PASS, words="one corrected error", name="ecc_corrected", where="dram")
HUNG = CounterFinding(outcome=Outcome.HANG, words="reading did not end", name="unread")


def about(*findings: CounterFinding, test: str = "memory_pattern", device: str = "cuda:0") -> CounterConclusions:
    return CounterConclusions(test=test, device=device, findings=findings, changes=(CHANGE,))


def result(outcome: Outcome, reason: str = "", device: str = "cuda:0") -> Result:
    return Result(test="memory_pattern", outcome=outcome, reason=reason, device=device)


@pytest.mark.parametrize(
    ("was", "finding", "is_now"),
    [
        (Outcome.PASS, BAD, Outcome.FAIL),
        (Outcome.ERROR, BAD, Outcome.FAIL),
        (Outcome.NOT_RUN, BAD, Outcome.FAIL),
        (Outcome.NOT_APPLICABLE, BAD, Outcome.FAIL),
        (Outcome.FAIL, BAD, Outcome.FAIL),
        (Outcome.HANG, BAD, Outcome.HANG),
        (Outcome.PASS, OPEN, Outcome.ERROR),
        (Outcome.NOT_APPLICABLE, OPEN, Outcome.ERROR),
        (Outcome.NOT_RUN, OPEN, Outcome.NOT_RUN),
        (Outcome.FAIL, OPEN, Outcome.FAIL),
        (Outcome.PASS, NOTED, Outcome.PASS),
        (Outcome.FAIL, NOTED, Outcome.FAIL),
    ],
)
def test_the_hardware_outweighs_the_test(was: Outcome, finding: CounterFinding, is_now: Outcome) -> None:
    reason = "" if was is Outcome.PASS else "the test's own reason"
    (joined,) = add_counter_conclusions([result(was, reason)], [about(finding)])
    assert joined.outcome is is_now
    assert joined.reason.startswith(reason)
    assert (finding.words in joined.reason) is (finding is not NOTED)
    assert (joined.remarks == (NOTED.words,)) is (finding is NOTED)
    assert joined.counter_changes == (CHANGE,)
    assert joined.evidence == ({COUNTED: True} if finding is BAD else {})


def test_only_the_device_it_is_about_is_judged() -> None:
    first, second = add_counter_conclusions(
        [result(Outcome.PASS), result(Outcome.PASS, device="cuda:1")], [about(BAD, device="cuda:1")]
    )
    assert (first.outcome, second.outcome) == (Outcome.PASS, Outcome.FAIL)


def test_a_fault_without_a_result_becomes_one_and_a_remark_does_not() -> None:
    results = [result(Outcome.PASS), Result(test="collectives", outcome=Outcome.PASS, device="cuda:0")]
    joined = add_counter_conclusions(
        results, [about(BAD, device="cuda:7"), about(HUNG, test=TEST), about(NOTED, test=TEST)]
    )
    assert [(each.test, each.device, each.outcome) for each in joined] == [
        ("memory_pattern", "cuda:0", Outcome.PASS),
        ("memory_pattern", "cuda:7", Outcome.FAIL),
        ("collectives", "cuda:0", Outcome.PASS),
        (TEST, "cuda:0", Outcome.HANG),
    ]


def test_the_links_of_a_fault_are_its_locations() -> None:
    link = CounterFinding(outcome=Outcome.FAIL, words="a recovery", name="nvlink_recoveries", where="NVLink 7")
    (joined,) = add_counter_conclusions([result(Outcome.PASS)], [about(link, BAD)])
    assert joined.locations == (Location(gpu="cuda:0", link=7),)


def test_nothing_changed_is_nothing_added() -> None:
    results = (result(Outcome.PASS),)
    assert add_counter_conclusions(results, [CounterConclusions(test="memory_pattern", device="cuda:0")]) == results
