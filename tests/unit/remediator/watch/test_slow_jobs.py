"""Who is slow, from what nodes report window by window, to the finding that the pipeline gets."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from remediator.monitoring.analysis_passes import PASS_ROWS
from tests.unit.remediator.watch.fleet import TRAIN, Fleet, Watched, own
from vocabulary.finding import Finding, Severity
from vocabulary.identity import ComponentKind

ROWS = 4 * PASS_ROWS


def slow(*ranks: int, by: float = 0.25, since: int = 0, until: int = 10**6) -> Callable[[int, int], float]:
    return lambda rank, row: 1 + by if rank in ranks and since <= row < until else 1.0


def watched(
    fleet: Fleet, own_s: Callable[[int, int], float], rows: int = ROWS, given: Watched | None = None
) -> Watched:
    watch = given or Watched()
    for _ in range(rows):
        heard = fleet.say(own_s)
        watch.look(heard, fleet.now)
    return watch


def test_one_slow_gpu_is_a_suspicion_of_it_with_its_numbers_and_not_of_anybody_else() -> None:
    watch = watched(Fleet(), slow(5))
    assert list(watch.stands) == ["straggler/gpu n0"]
    (found,) = watch.stands.values()
    assert (found.severity, found.component.name) == (Severity.WARNING, "GPU-5")
    assert found.evidence["slowdown"] == pytest.approx(0.25, abs=0.02)
    assert (found.evidence["ranks"], found.evidence["level"], found.evidence["confirmed"]) == ("5", "now", "unknown")
    assert len(watch.told) == 1, "the same is not told at every look"


def test_one_pass_names_nobody_and_a_quiet_job_is_nobodys_fault() -> None:
    assert not watched(Fleet(), slow(5), rows=4 + PASS_ROWS + 8).told
    assert not watched(Fleet(), slow()).told


def test_a_node_whose_ranks_are_all_slow_is_named_once() -> None:
    watch = watched(Fleet(nodes=4), slow(*range(8, 16)))
    assert list(watch.stands) == ["straggler/node n1"]
    assert watch.stands["straggler/node n1"].component.kind is ComponentKind.HOST


def test_a_node_that_is_a_whole_stage_is_named_by_its_first_pass_and_only_watched() -> None:
    watch = watched(Fleet(nodes=4, stages=True), slow(*range(8, 16), since=40))
    assert list(watch.stands) == ["straggler/node n1"]
    (found,) = watch.stands.values()
    assert (found.severity, found.evidence["level"]) == (Severity.WARNING, "watch"), "no peer confirms it"


def test_a_stage_that_was_always_slow_does_not_exclude_its_node() -> None:
    watch = watched(Fleet(nodes=4, stages=True), slow(*range(8, 16)))
    assert list(watch.stands) == ["straggler/stage n0"]
    (found,) = watch.stands.values()
    assert found.severity is Severity.INFO
    assert "a slow node cannot be excluded" in found.summary
    assert "not because of a node" not in found.summary


def test_the_nodes_own_finding_confirms_it_and_only_after_that_it_is_an_error() -> None:
    fleet, watch = Fleet(), Watched()
    watched(fleet, slow(5, by=0.5), given=watch)
    throttled = own("n0", "throttle/hw_thermal", gpu=5)
    watch.findings[throttled.id] = throttled
    watched(fleet, slow(5, by=0.5), rows=1, given=watch)
    found = watch.stands["straggler/gpu n0"]
    assert (found.evidence["confirmed"], found.severity) == ("yes", Severity.WARNING), "it is not worth leaving yet"
    watched(fleet, slow(5, by=0.5), rows=300, given=watch)
    found = watch.stands["straggler/gpu n0"]
    assert found.severity is Severity.ERROR
    assert float(found.evidence["staying_costs_s"]) >= float(found.evidence["leaving_costs_s"])


@pytest.mark.parametrize(
    "other",
    [own("n0", "throttle/hw_thermal", gpu=4), own("n1", "throttle/hw_thermal"), own("n0", "infiniband/flapping")],
)
def test_what_is_wrong_elsewhere_confirms_nothing(other: Finding) -> None:
    watch = watched(Fleet(), slow(5, by=0.5), rows=420, given=Watched([other]))
    assert watch.stands["straggler/gpu n0"].severity is Severity.WARNING


def test_who_is_no_longer_slow_is_taken_back() -> None:
    fleet = Fleet()
    watch = watched(fleet, slow(5, until=ROWS))
    assert watch.stands
    watched(fleet, slow(), given=watch)
    assert not watch.stands
    assert watch.told[-1].cleared_by == "no longer slower than its peers"


def test_who_left_the_job_is_not_called_well_by_those_who_stay() -> None:
    fleet = Fleet(nodes=4)
    watch = watched(fleet, slow(5))
    before = watch.stands
    for _ in range(ROWS):
        watch.look(fleet.say()[1:], fleet.now)
    assert "n0" not in {seat.node for crew in watch.job._crews for seat in crew.timings.seats.values()}
    assert watch.stands == before


def test_what_a_passed_test_took_back_is_not_said_again_of_the_steps_before_it() -> None:
    fleet = Fleet()
    watch = watched(fleet, slow(5))
    (found,) = watch.stands.values()
    watch.findings[found.id] = found.cleared(fleet.now, "passed a preflight")
    watched(fleet, slow(5), rows=3, given=watch)
    assert not watch.stands
    watched(fleet, slow(5), rows=PASS_ROWS, given=watch)
    assert list(watch.stands) == ["straggler/gpu n0"], "it is slow still"


def test_another_leader_says_the_same_of_the_same_and_clears_nothing_before_it_knows() -> None:
    fleet = Fleet()
    before = watched(fleet, slow(5))
    after = Watched(before.findings.values())
    watched(fleet, slow(5), rows=PASS_ROWS, given=after)
    assert not after.told
    watched(fleet, slow(5), given=after)
    assert list(after.stands) == ["straggler/gpu n0"]
    assert {found.id for found in after.told} <= before.findings.keys()


def test_another_leader_takes_no_confirmed_one_for_a_new_suspicion() -> None:
    throttled = own("n0", "throttle/hw_thermal", gpu=5)
    fleet, before = Fleet(), Watched([throttled])
    watched(fleet, slow(5, by=0.5), rows=420, given=before)
    (error,) = before.stands.values()
    assert error.severity is Severity.ERROR
    after = Watched(before.findings.values())
    watched(fleet, slow(5, by=0.5), given=after)
    (found,) = after.stands.values()
    assert (found.severity, found.id) == (Severity.ERROR, error.id)
    assert {told.severity for told in after.told} <= {Severity.ERROR}


def test_everybody_slower_at_once_is_the_jobs_own_and_informs_only() -> None:
    watch = watched(Fleet(), lambda _rank, row: 1.0 if row < 40 else 1.4, rows=4 + PASS_ROWS * 2)
    assert all(found.severity is Severity.INFO for found in watch.told)
    assert not [f for f in watch.told if f.component.kind is not ComponentKind.RANK]


def test_a_node_that_lies_about_its_own_times_is_the_only_one_it_can_be_blamed_on() -> None:
    """It claims the other node's ranks, steps of next year, and windows as long as they may be."""
    fleet, watch = Fleet(nodes=4), Watched()
    for _ in range(ROWS):
        heard = fleet.say(slow(20))
        told = heard[0]
        lies = [
            replace(rank, rank=rank.rank + 8 * place, windows=tuple(replace(w, forward_s=1e-3, backward_s=1e-3) for w in rank.windows))
            for place in range(4) for rank in told.ranks
        ]  # fmt: skip
        far = [
            replace(rank, windows=(replace(rank.windows[-1], first=2**40, size=1024, steps=1024),))
            for rank in told.ranks
        ]
        heard[0] = told._replace(ranks=[*lies[: fleet.row % 2 * 32], *far])
        watch.look([*heard[1:], heard[0]], fleet.now)
    assert {found.node for found in watch.stands.values()} <= {"n2", "n0"}
    assert "straggler/gpu n2" in watch.stands
    assert watch.job.ref == TRAIN


@pytest.mark.parametrize(("ranks", "stages", "since"), [(24, False, 40), (56, False, 0), (5, True, 40), (5, True, 0)])
def test_fast_ranks_that_one_node_invents_order_no_test_of_another_node(
    ranks: int, since: int, *, stages: bool
) -> None:
    fleet, invented, watch = Fleet(nodes=1), Fleet(nodes=1, per_node=8 + ranks, seed=1), Watched()
    for _ in range(ROWS):
        (honest,) = fleet.say()
        (lies,) = invented.say(slow(*range(8 + ranks), by=-0.25, since=since))
        both = [
            word._replace(
                node=node,
                ranks=[
                    replace(r, world=64, pipeline_stage=(r.rank if r.rank < 8 else 0) if stages else -1)
                    for r in word.ranks
                    if (r.rank < 8) == (node == "n0")
                ],
            )
            for node, word in (("n0", honest), ("liar", lies))
        ]
        watch.look(both, fleet.now)
    suspected = [found for found in watch.told if found.node == "n0"]
    assert suspected, "it is worth watching"
    assert {(found.severity, found.evidence["level"]) for found in suspected} == {(Severity.WARNING, "watch")}
