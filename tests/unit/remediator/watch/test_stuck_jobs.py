"""A job that stands still: the one rank that did not arrive is named, those that wait never are."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from remediator.monitoring.step_windows import NodeRankReport
from remediator.monitoring.straggler_findings import job_component
from tests.unit.remediator.watch.fleet import TRAIN, Fleet, Watched, own
from vocabulary.finding import Finding, Severity
from vocabulary.messages.wire import RankStatus

STUCK_S = 700.0


def stalled(node: str) -> Finding:
    return replace(own(node, "training/stalled"), id=f"stalled-{node}", component=job_component(TRAIN))


def waiting(rank: RankStatus) -> RankStatus:
    return replace(rank, section="communication")


def stands(
    change: Callable[[RankStatus], RankStatus] = waiting,
    nodes: int = 4,
    given: tuple[Finding, ...] = (),
    says: Iterable[int] = range(4),
    stuck_s: float = STUCK_S,
) -> tuple[Watched, list[NodeRankReport], float]:
    """All ranks wait in communication, but for what `change` makes of one; the nodes `says` call it a stall."""
    fleet = Fleet(nodes)
    heard = [word._replace(ranks=[change(waiting(rank)) for rank in word.ranks]) for word in fleet.say()]
    heard = [word._replace(sent_at=word.at + stuck_s) for word in heard]
    return Watched((*(stalled(fleet.names[each]) for each in says), *given)), heard, fleet.now + stuck_s


def one(number: int, **changes: object) -> Callable[[RankStatus], RankStatus]:
    return lambda rank: replace(rank, **changes) if rank.rank == number else rank


def judged(
    watch: Watched, heard: list[NodeRankReport], now: float, silent: tuple[str, ...] = ()
) -> list[tuple[str, Severity]]:
    watch.look(heard, now, silent)
    return [(name, finding.severity) for name, finding in watch.stands.items()]


def test_a_rank_that_stays_on_its_gpu_while_all_others_wait() -> None:
    watch, heard, now = stands(one(11, section="backward"))
    assert judged(watch, heard, now) == [("hang/stuck_compute n1", Severity.ERROR)]
    (found,) = watch.stands.values()
    assert found.component.name == "GPU-11"
    assert (found.evidence["ranks"], found.evidence["waiting"], found.evidence["section"]) == ("11", 31, "backward")


@pytest.mark.parametrize("section", ["data", "other", "checkpoint", ""])
def test_what_the_host_or_the_program_may_keep_it_with_is_shown_and_takes_no_node(section: str) -> None:
    assert judged(*stands(one(11, section=section))) == [("hang/stuck_compute n1", Severity.WARNING)]


@pytest.mark.parametrize("stack", ["data", "checkpoint", "compile"])
def test_a_rank_whose_stack_is_off_the_gpu_takes_no_node(stack: str) -> None:
    watch, heard, now = stands(one(11, section="backward", stack=stack))
    assert judged(watch, heard, now) == [("hang/stuck_compute n1", Severity.WARNING)]
    (found,) = watch.stands.values()
    assert found.evidence["stack"] == stack
    assert found.summary.endswith(f"its stack is in {stack}")


@pytest.mark.parametrize("stack", ["", "other", "cuda_sync", "collective", "something new"])
def test_any_other_stack_changes_no_verdict(stack: str) -> None:
    assert judged(*stands(one(11, section="backward", stack=stack))) == [("hang/stuck_compute n1", Severity.ERROR)]


def test_a_rank_in_its_data_loader_is_told_from_those_in_a_collective_where_no_section_is() -> None:
    def change(rank: RankStatus) -> RankStatus:
        return replace(rank, section="forward", stack="data" if rank.rank == 11 else "collective")

    watch, heard, now = stands(change)
    assert judged(watch, heard, now) == [("hang/stuck_compute n1", Severity.WARNING)]
    assert next(iter(watch.stands.values())).evidence["ranks"] == "11"


def test_a_rank_that_reads_is_not_in_the_communication_that_its_section_says() -> None:
    watch, heard, now = stands(one(11, stack="data"))
    assert judged(watch, heard, now) == [("hang/stuck_compute n1", Severity.WARNING)]


def test_a_collective_in_one_stack_accuses_no_rank_that_may_be_in_the_same() -> None:
    def change(rank: RankStatus) -> RankStatus:
        return replace(rank, section="forward", stack="other" if rank.rank == 11 else "collective")

    assert judged(*stands(change)) == [("hang/nobody n0", Severity.WARNING)]


def test_a_rank_that_died_is_named_and_its_node_only_taken_if_it_says_itself_that_it_is_sick() -> None:
    dead = one(3, alive=False, section="forward")
    assert judged(*stands(dead)) == [("hang/dead_rank n0", Severity.WARNING)]
    sick = own("n0", "xid/79", gpu=3, severity=Severity.FATAL)
    assert judged(*stands(dead, given=(sick,))) == [("hang/dead_rank n0", Severity.ERROR)]
    elsewhere = own("n1", "xid/79", severity=Severity.FATAL)
    assert judged(*stands(dead, given=(elsewhere,))) == [("hang/dead_rank n0", Severity.WARNING)]


def test_who_waits_for_a_dead_rank_in_the_middle_of_its_step_is_its_victim() -> None:
    def change(rank: RankStatus) -> RankStatus:
        return (
            replace(rank, alive=False)
            if rank.rank == 3
            else replace(rank, section="forward" if rank.rank == 20 else "communication")
        )

    assert [name for name, _ in judged(*stands(change))] == ["hang/dead_rank n0"]


def test_a_node_that_fell_silent_is_pointed_at_and_not_condemned() -> None:
    watch, heard, now = stands()
    assert judged(watch, heard, now, silent=("n2",)) == [("hang/dead_rank n2", Severity.WARNING)]


def test_all_in_the_same_collective_is_the_network_and_ranks_missing_here_and_there_are_nobodys() -> None:
    assert judged(*stands()) == [("hang/network n0", Severity.WARNING)]
    watch, heard, now = stands(lambda rank: replace(rank, section="forward") if rank.rank in (3, 20) else rank)
    assert judged(watch, heard, now) == [("hang/nobody n0", Severity.WARNING)]
    assert next(iter(watch.stands.values())).component == job_component(TRAIN)


def test_one_node_alone_cannot_call_a_job_stuck_and_a_job_that_moves_is_not() -> None:
    assert judged(*stands(one(11, section="backward"), says=[0])) == []
    watch, heard, now = stands(one(11, section="backward"))
    moved = [
        heard[0]._replace(ranks=[replace(heard[0].ranks[0], at=heard[0].sent_at - 1), *heard[0].ranks[1:]]),
        *heard[1:],
    ]
    assert judged(watch, moved, now) == []


def test_it_is_taken_back_when_the_job_moves_again() -> None:
    watch, heard, now = stands(one(11, section="backward"))
    judged(watch, heard, now)
    watch.findings = {key: f.cleared(now, "moves") if f.check == "training" else f for key, f in watch.findings.items()}
    assert judged(watch, heard, now + 10) == []
    assert watch.told[-1].cleared_by == "the job makes progress again"


def test_who_has_not_heard_all_ranks_names_nobody_and_takes_nothing_back() -> None:
    watch, heard, now = stands(lambda rank: replace(rank, section="forward") if rank.rank in (3, 20) else rank)
    assert judged(watch, heard[:1], now) == []
    assert judged(watch, heard[1:], now + 2) == [("hang/nobody n0", Severity.WARNING)]


def test_a_new_leader_lets_stand_what_the_old_one_said_until_it_has_heard_all() -> None:
    before, heard, now = stands(one(11, section="backward"))
    judged(before, heard, now)
    watch = Watched(before.findings.values())
    assert [name for name, _ in judged(watch, heard[2:3], now + 15)] == ["hang/stuck_compute n1"]
    assert [name for name, _ in judged(watch, heard, now + 20)] == ["hang/stuck_compute n1"]
    assert watch.told == []


def test_a_page_left_over_does_not_stand_for_the_rank_that_lives_elsewhere() -> None:
    sick = own("old", "xid/79", gpu=3, severity=Severity.FATAL)
    watch, heard, now = stands(given=(sick,))
    old = NodeRankReport("old", [replace(heard[0].ranks[3], alive=False, section="forward")], now, now)
    assert judged(watch, [*heard, old], now) == [("hang/network n0", Severity.WARNING)]


@pytest.mark.parametrize("claims", [1, 8])
def test_a_node_that_claims_anothers_ranks_does_not_hide_that_they_stand_still(claims: int) -> None:
    watch, heard, now = stands(one(11, section="backward"))
    theirs = heard[1].ranks if claims == 8 else heard[1].ranks[3:4]
    fresh = [replace(rank, at=now, step=rank.step + 1) for rank in theirs]
    assert [name for name, _ in judged(watch, [*heard, NodeRankReport("evil", fresh, now, now)], now)] == [
        "hang/stuck_compute n1"
    ]


@pytest.mark.parametrize("world", [32, 4096])
def test_ranks_that_the_job_has_not_by_most_nodes_word_count_for_nothing(world: int) -> None:
    watch, heard, now = stands(one(11, section="backward"))
    invented = [replace(heard[0].ranks[0], rank=number, world=world, at=now) for number in range(100, 164)]
    evil = NodeRankReport("evil", invented, now, now)
    assert [name for name, _ in judged(watch, [*heard, evil], now)] == ["hang/stuck_compute n1"]


def test_no_node_is_condemned_by_the_word_of_others() -> None:
    forward = one(11, section="forward")
    assert judged(*stands(forward, says=[0, 2, 3])) == [("hang/stuck_compute n1", Severity.WARNING)]
    assert judged(*stands(forward, says=[0, 1])) == [("hang/stuck_compute n1", Severity.ERROR)]


def test_a_program_may_stay_in_its_forward_for_minutes_unless_its_node_is_sick() -> None:
    forward = one(11, section="forward")
    assert judged(*stands(forward, stuck_s=300.0)) == [("hang/stuck_compute n1", Severity.WARNING)]
    sick = own("n1", "ecc/uncorrected", gpu=3, severity=Severity.ERROR)
    assert judged(*stands(forward, stuck_s=300.0, given=(sick,))) == [("hang/stuck_compute n1", Severity.ERROR)]


def test_what_is_only_pointed_at_becomes_an_error_when_it_lasts() -> None:
    watch, heard, now = stands(one(11, section="forward"), stuck_s=300.0)
    assert judged(watch, heard, now) == [("hang/stuck_compute n1", Severity.WARNING)]
    later = [word._replace(sent_at=word.sent_at + 400.0, at=word.at + 400.0) for word in heard]
    assert judged(watch, later, now + 400.0) == [("hang/stuck_compute n1", Severity.ERROR)]


@pytest.mark.parametrize(
    ("section", "written_s"), [("communication", STUCK_S), ("forward", 1.0), ("backward", STUCK_S)]
)
@pytest.mark.parametrize("n0_is_silent", [False, True])
def test_a_node_without_a_rank_of_the_job_brings_nobody_to_life(
    section: str, written_s: float, *, n0_is_silent: bool
) -> None:
    sick = own("n0", "xid/79", gpu=3, severity=Severity.FATAL)
    watch, heard, now = stands(waiting if n0_is_silent else one(3, alive=False, section="forward"), given=(sick,))
    lie = replace(heard[0].ranks[3], alive=True, gpu="", section=section, at=now - written_s)
    said = judged(watch, [*heard, NodeRankReport("liar", [lie], now, now)], now, ("n0",) if n0_is_silent else ())
    assert said == [("hang/dead_rank n0", Severity.WARNING if n0_is_silent else Severity.ERROR)]


@pytest.mark.parametrize("moved", ["once", "twice"])
def test_pages_left_over_on_a_node_that_holds_other_ranks_now_do_not_stand_for_those_that_live(moved: str) -> None:
    """A job that was started again in place has its ranks elsewhere."""
    watch, heard, now = stands(given=(own("n1", "xid/79", severity=Severity.FATAL),))
    left = [replace(rank, alive=False, section="forward", at=rank.at - 900.0) for rank in heard[2].ranks]
    heard[1] = heard[1]._replace(ranks=[*heard[1].ranks, *left])
    if moved == "twice":
        left = [replace(rank, alive=False, at=rank.at - 900.0) for rank in heard[1].ranks[:8]]
        heard[2] = heard[2]._replace(ranks=[*heard[2].ranks, *left])
    assert judged(watch, heard, now) == [("hang/network n0", Severity.WARNING)]


def test_a_job_that_moved_to_another_node_whole_is_not_where_its_dead_pages_are() -> None:
    watch, heard, now = stands(given=(own("old", "xid/79", severity=Severity.FATAL),))
    left = [replace(rank, alive=False, section="forward") for rank in heard[0].ranks]
    assert judged(watch, [*heard, NodeRankReport("old", left, now, now)], now) == [
        ("hang/network n0", Severity.WARNING)
    ]


TRUTHS = {
    "dead": (one(3, alive=False, section="forward"), ()),
    "stuck": (one(11, section="backward"), ()),
    "silent": (waiting, ("n2",)),
    "network": (waiting, ()),
}
LIE: st.SearchStrategy[dict[str, Any]] = st.builds(
    dict,
    rank=st.integers(0, 31).filter(lambda rank: rank % 8),  # each node keeps a rank that nobody disputes
    alive=st.booleans(),
    section=st.sampled_from(["forward", "backward", "communication", "data"]),
    phase=st.sampled_from(["step", "done", "leaving", "saving"]),
    step=st.integers(-1, 2**40),
    at=st.floats(1.6e9, 1.8e9),
)


@settings(max_examples=60, deadline=None)
@given(truth=st.sampled_from(sorted(TRUTHS)), lies=st.lists(LIE, min_size=1, max_size=40), first=st.booleans())
def test_whatever_a_node_without_a_rank_of_its_own_tells_of_ranks_the_same_is_said(
    truth: str, lies: list[dict[str, Any]], *, first: bool
) -> None:
    change, silent = TRUTHS[truth]
    watch, heard, now = stands(change)
    told = NodeRankReport("liar", [replace(heard[0].ranks[0], gpu="", **lie) for lie in lies], now, now)
    expected = judged(*stands(change), silent)
    assert expected
    assert judged(watch, [told, *heard] if first else [*heard, told], now, silent) == expected


def idle(node: str) -> Finding:
    return replace(stalled(node), id=f"idle-{node}", code="rank_idle")


def test_an_idle_rank_that_all_others_wait_for_is_an_error_within_the_first_minute() -> None:
    backward = one(11, section="backward")
    assert judged(*stands(backward, says=(), stuck_s=30.0)) == []
    watch, heard, now = stands(backward, says=(), stuck_s=30.0, given=(idle("n1"),))
    assert judged(watch, heard, now) == [("hang/stuck_compute n1", Severity.ERROR)]


def missing(node: str, **evidence: object) -> Finding:
    return replace(own("n0", "nccl/rank_missing"), id="ras", evidence={"host": node, "ranks": 32, **evidence})


@pytest.mark.parametrize("evidence", [{"rank": 11, "pid": 4711}, {"rank": 3, "pid": 1}])
def test_a_rank_that_nccls_counts_name_as_well_is_an_error_within_the_first_minute(evidence: dict[str, object]) -> None:
    watch, heard, now = stands(one(11, section="backward"), says=(), stuck_s=30.0, given=(missing("n1", **evidence),))
    assert judged(watch, heard, now) == [("hang/stuck_compute n1", Severity.ERROR)]


@pytest.mark.parametrize(
    ("finding", "severities"),
    [
        (missing("n2", rank=11, pid=4711), []),  # another node
        (missing("n1", rank=11, pid=4711, ranks=8), []),  # another job
        (missing("n1", rank=12, pid=4711), [Severity.WARNING]),  # the witnesses disagree
    ],
)
def test_a_witness_that_names_another_rank_condemns_nobody(finding: Finding, severities: list[Severity]) -> None:
    found = judged(*stands(one(11, section="backward"), says=(), stuck_s=30.0, given=(finding,)))
    assert [severity for _, severity in found] == severities


@pytest.mark.parametrize(
    ("change", "witness", "stuck_s", "expected"),
    [
        (one(11, section="backward"), "n1", 10.0, []),  # not long enough
        (one(11, section="backward"), "n2", 30.0, [("hang/stuck_compute n1", Severity.WARNING)]),  # another node's word
        (one(11, section="data"), "n1", 30.0, [("hang/stuck_compute n1", Severity.WARNING)]),
        (one(11, phase="between"), "n1", 30.0, []),  # an evaluation
        (waiting, "n1", 30.0, [("hang/network n0", Severity.WARNING)]),
        (one(11, section="backward", step_median=30.0), "n1", 60.0, []),  # two usual steps
    ],
)
def test_a_witness_alone_takes_no_node(
    change: Callable[[RankStatus], RankStatus], witness: str, stuck_s: float, expected: list[tuple[str, Severity]]
) -> None:
    assert judged(*stands(change, says=(), stuck_s=stuck_s, given=(idle(witness),))) == expected


def test_a_job_in_which_one_rank_moves_is_not_stuck_whatever_a_node_reports_as_idle() -> None:
    watch, heard, now = stands(one(11, section="backward"), says=(), stuck_s=30.0, given=(idle("n1"),))
    moves = replace(heard[0].ranks[0], at=heard[0].sent_at - 1)
    heard[0] = heard[0]._replace(ranks=[moves, *heard[0].ranks[1:]])
    assert judged(watch, heard, now) == []
