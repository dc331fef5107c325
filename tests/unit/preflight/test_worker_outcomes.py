from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.execution.worker_outcomes import (
    WorkerExit,
    WorkerOutcome,
    build_peer_results,
    build_worker_results,
    find_blamed_workers,
)
from preflight.results import Outcome, Result

PASSED = Result(test="meets", outcome=Outcome.PASS, device="cuda:0")


def ending(
    device: str, how: WorkerExit, *, step: int = 1, doing: str = "meeting", killed_by: str = ""
) -> WorkerOutcome:
    results = (PASSED,) if how is WorkerExit.DONE else ()
    if how is WorkerExit.RAISED:
        results = (Result(test="meets", outcome=Outcome.ERROR, device=device, reason="connection closed"),)
    return WorkerOutcome(
        device=device, how=how, results=results, step=step, doing=doing, watchdog_s=5.0, code=1, killed_by=killed_by
    )


def told(*endings: WorkerOutcome) -> dict[str, tuple[Outcome, str]]:
    return {result.device: (result.outcome, result.reason) for result in build_peer_results("meets", endings)}


@pytest.mark.parametrize(
    ("killed_by", "outcome", "says"),
    [
        ("SIGSEGV", Outcome.FAIL, "was killed by SIGSEGV at: meeting; it left no message"),
        ("SIGBUS", Outcome.FAIL, "was killed by SIGBUS"),
        ("SIGABRT", Outcome.ERROR, "was killed by SIGABRT"),
        ("SIGKILL", Outcome.ERROR, "was killed by SIGKILL"),
        ("", Outcome.ERROR, "ended with 1"),
    ],
)
def test_a_crash_accuses_the_machine_only_of_what_the_processor_itself_refused(
    killed_by: str, outcome: Outcome, says: str
) -> None:
    (result,) = build_worker_results("meets", ending("cuda:0", WorkerExit.GONE, killed_by=killed_by))
    assert result.outcome is outcome
    assert says in result.reason


def test_what_was_said_before_a_hang_is_kept() -> None:
    hung = WorkerOutcome(device="cuda:0", how=WorkerExit.HUNG, results=(PASSED,), doing="the rest", watchdog_s=2.0)
    assert [result.outcome for result in build_worker_results("meets", hung)] == [Outcome.PASS, Outcome.HANG]


def test_a_test_that_says_nothing_is_no_pass() -> None:
    silent = WorkerOutcome(device="cuda:0", how=WorkerExit.DONE)
    assert build_worker_results("meets", silent)[0].outcome is Outcome.ERROR
    assert {result.outcome for result in build_peer_results("meets", [silent, silent])} == {Outcome.ERROR}


def test_one_device_may_speak_for_all() -> None:
    silent = WorkerOutcome(device="cuda:1", how=WorkerExit.DONE)
    assert build_peer_results("meets", [ending("cuda:0", WorkerExit.DONE), silent]) == (PASSED,)


def test_of_those_that_hang_the_one_that_is_behind_is_named_and_the_others_only_waited() -> None:
    found = told(
        ending("cuda:0", WorkerExit.HUNG, step=4, doing="all_reduce 2"),
        ending("cuda:1", WorkerExit.HUNG, step=3, doing="filling its share"),
        ending("cuda:2", WorkerExit.HUNG, step=4, doing="all_reduce 2"),
    )
    assert [outcome for outcome, _ in found.values()] == [Outcome.NOT_RUN, Outcome.HANG, Outcome.NOT_RUN]
    assert found["cuda:1"][1] == (
        "did not arrive within 5 s; last seen at: filling its share, while cuda:0 waited at: all_reduce 2"
    )
    assert found["cuda:0"][1] == "at all_reduce 2, it waited for cuda:1, last seen at: filling its share"


def test_where_all_came_to_the_same_place_nobody_is_singled_out() -> None:
    found = told(ending("cuda:0", WorkerExit.HUNG), ending("cuda:1", WorkerExit.HUNG))
    assert {outcome for outcome, _ in found.values()} == {Outcome.HANG}


def test_an_exception_that_a_crash_of_another_explains_accuses_nobody() -> None:
    found = told(ending("cuda:0", WorkerExit.RAISED), ending("cuda:1", WorkerExit.GONE, killed_by="SIGSEGV"))
    assert found["cuda:0"][0] is Outcome.NOT_RUN
    assert found["cuda:1"][0] is Outcome.FAIL


endings = st.lists(st.tuples(st.sampled_from(WorkerExit), st.integers(1, 4)), min_size=2, max_size=6).map(
    lambda drawn: [ending(f"cuda:{i}", how, step=step) for i, (how, step) in enumerate(drawn)]
)


@given(endings)
def test_every_device_that_was_not_done_has_a_result_and_somebody_is_to_blame(drawn: list[WorkerOutcome]) -> None:
    results = build_peer_results("meets", drawn)
    undone = {e.device for e in drawn if e.how is not WorkerExit.DONE}
    assert undone <= {result.device for result in results}
    assert bool(find_blamed_workers(drawn)) is bool(undone)
    bad = {result.device for result in results if result.outcome in (Outcome.HANG, Outcome.FAIL, Outcome.ERROR)}
    assert bad == {e.device for e in find_blamed_workers(drawn)}


@given(endings.flatmap(lambda drawn: st.tuples(st.just(drawn), st.permutations(drawn))))
def test_who_is_to_blame_does_not_depend_on_the_order(both: tuple[list[WorkerOutcome], list[WorkerOutcome]]) -> None:
    drawn, shuffled = both
    assert {e.device for e in find_blamed_workers(drawn)} == {e.device for e in find_blamed_workers(shuffled)}


@pytest.mark.parametrize(
    ("noise", "judged"),
    [
        ("watchdog thread terminated: CUDA error: uncorrectable ECC error encountered", (Outcome.FAIL, False)),
        ("terminate called: CUDA error: system not yet initialized", (Outcome.NOT_RUN, True)),
        ("terminate called: CUDA error: out of memory", (Outcome.NOT_RUN, False)),
        ("terminate called after throwing an instance of 'std::bad_alloc'", (Outcome.ERROR, False)),
    ],
)
def test_an_aborted_process_is_judged_by_its_own_words(noise: str, judged: tuple[Outcome, bool]) -> None:
    gone = msgspec.structs.replace(ending("cuda:0", WorkerExit.GONE, killed_by="SIGABRT"), noise=noise)
    (result,) = build_worker_results("meets", gone)
    assert (result.outcome, result.misconfigured) == judged
    assert noise in result.reason
    (killed,) = build_worker_results("meets", msgspec.structs.replace(gone, killed_by="SIGKILL"))
    assert (killed.outcome, killed.misconfigured) == (Outcome.ERROR, False)  # what killed it is no error of CUDA


def test_a_device_that_failed_is_blamed_before_those_whose_processes_ended_after_it() -> None:
    failed = Result(test="meets", outcome=Outcome.FAIL, device="cuda:1", reason="the device failed")
    first = msgspec.structs.replace(ending("cuda:1", WorkerExit.RAISED), results=(failed,))
    found = told(ending("cuda:0", WorkerExit.RAISED), first, ending("cuda:2", WorkerExit.GONE, killed_by="SIGABRT"))
    assert [outcome for outcome, _ in found.values()] == [Outcome.NOT_RUN, Outcome.FAIL, Outcome.ERROR]


@pytest.mark.parametrize("how", [WorkerExit.RAISED, WorkerExit.GONE])
def test_who_lost_access_to_a_peer_whose_process_was_killed_is_not_accused(how: WorkerExit) -> None:
    words = "CUDA error: Invalid access of peer GPU memory over nvlink or a hardware error"
    failed = Result(test="meets", outcome=Outcome.FAIL, device="cuda:0", reason=f"the device failed: {words}")
    lost = msgspec.structs.replace(
        ending("cuda:0", how, killed_by="SIGABRT" if how is WorkerExit.GONE else ""),
        results=() if how is WorkerExit.GONE else (failed,),
        noise=words if how is WorkerExit.GONE else "",
    )
    found = told(lost, ending("cuda:1", WorkerExit.GONE, killed_by="SIGKILL"))
    assert [outcome for outcome, _ in found.values()] == [Outcome.NOT_RUN, Outcome.ERROR]
    alone = told(lost, ending("cuda:1", WorkerExit.HUNG))
    assert alone["cuda:0"][0] is Outcome.FAIL
