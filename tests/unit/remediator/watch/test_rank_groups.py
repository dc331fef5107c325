"""Who is judged with whom, when nodes dispute what a job is."""

from __future__ import annotations

from msgspec.structs import replace

from remediator.monitoring.job_monitor import RankGroups
from remediator.monitoring.step_windows import LEFT_S, PAUSE_S, NodeRankReport
from tests.unit.remediator.watch.fleet import Fleet, Watched
from tests.unit.remediator.watch.test_slow_jobs import ROWS, slow


def places(crews: RankGroups) -> list[set[str]]:
    return [{seat.node for seat in crew.timings.seats.values()} for crew in crews]


def test_a_job_of_the_same_name_hides_nobody() -> None:
    one, other, watch = Fleet(nodes=1), Fleet(nodes=1, seed=3), Watched()
    for _ in range(ROWS):
        (theirs,) = other.say(slow(5, by=0.4))
        watch.look([*one.say(), theirs._replace(node="n1")], one.now)
    assert list(watch.stands) == ["straggler/gpu n1"]
    assert places(watch.job._crews) == [{"n0"}, {"n1"}]


def test_a_node_that_tells_of_ever_other_ranks_of_a_world_of_its_own_keeps_no_pass_from_being_made() -> None:
    fleet, watch = Fleet(nodes=4), Watched()
    for look in range(ROWS):
        heard = fleet.say(slow(5, by=0.4))
        base = heard[0].ranks[0]
        invented = [replace(base, rank=1000 + 64 * look + place, world=1 << 20) for place in range(64)]
        watch.look([*heard, NodeRankReport("liar", invented, fleet.now, fleet.now)], fleet.now)
    assert list(watch.stands) == ["straggler/gpu n0"]
    assert sum(len(crew.timings.seats) for crew in watch.job._crews) <= 32 + 64


def test_a_rank_that_was_anothers_comes_to_the_others_when_that_one_has_gone() -> None:
    crews, fleet = RankGroups(), Fleet(nodes=3)
    crews.take(fleet.say())
    spare = fleet.say()[0]._replace(node="n3")
    for pause in range(int(LEFT_S / PAUSE_S) + 3):
        at = fleet.now + PAUSE_S * pause
        crews.take([word._replace(at=at) for word in (*fleet.say()[1:], spare)])
        if not pause:
            assert places(crews) == [{"n0", "n1", "n2"}, {"n3"}]
    assert places(crews) == [{"n1", "n2", "n3"}]


def test_a_job_that_goes_on_with_fewer_ranks_is_judged_by_those_and_the_old_crew_goes() -> None:
    crews, fleet = RankGroups(), Fleet(nodes=3)
    crews.take(fleet.say())
    for pause in range(int(LEFT_S / PAUSE_S) + 3):
        (word, *_) = fleet.say()
        smaller = [replace(rank, world=8) for rank in word.ranks]
        crews.take([word._replace(ranks=smaller, at=fleet.now + PAUSE_S * pause)])
        assert {"n0"} in places(crews)
    assert places(crews) == [{"n0"}]
    assert crews.of("n1") is None
