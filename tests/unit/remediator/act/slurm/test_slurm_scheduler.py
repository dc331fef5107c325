"""What the backend makes of a Slurm that is slow, away, or changed by another hand in the same moment."""

from __future__ import annotations

from itertools import pairwise

import pytest
from msgspec.structs import replace

from remediator.model.journal_records import NodeRecord
from remediator.model.node_location import NodeLocation
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.slurm.slurm_records import Reservation, SlurmJob
from remediator.state.node_index import NodeIndex
from tests.unit.remediator.act.slurm.slurm_in_memory import Slurm, centre

OURS = "gpu-healthd: inc-1 XID 79"


def test_an_operator_who_drains_right_after_us_keeps_the_node() -> None:
    slurm = Slurm()
    slurm.between = lambda: slurm.hold("n1", "fan, ask Kim")
    outcome = centre(slurm)[0].cordon("n1", OURS)
    assert outcome.result is ActionResult.REFUSED
    assert "at the same moment: fan, ask Kim" in outcome.detail
    assert slurm.table["n1"].reason == "fan, ask Kim"


def test_an_operator_who_drains_right_after_we_lift_keeps_the_node() -> None:
    slurm = Slurm()
    slurm.hold("n1", OURS)
    slurm.between = lambda: slurm.hold("n1", "not yet")
    outcome = centre(slurm)[0].resume("n1")
    assert outcome.result is ActionResult.REFUSED
    assert "at the same moment: not yet" in outcome.detail


def test_a_drain_that_was_taken_counts_though_nobody_answers_any_more() -> None:
    slurm = Slurm()
    slurm.between = lambda: setattr(slurm, "away", "scontrol gave no answer")
    assert centre(slurm)[0].cordon("n1", OURS).result is ActionResult.DONE


def test_slurms_own_reason_is_kept_behind_ours() -> None:
    slurm = Slurm()
    slurm.hold("n1", "Kill task failed")
    assert centre(slurm)[0].cordon("n1", OURS).result is ActionResult.DONE
    assert slurm.table["n1"].reason == f"{OURS} (Slurm: Kill task failed)"


def test_a_node_that_slurm_does_not_know_is_nobodys() -> None:
    slurm = Slurm()
    scheduler, _ = centre(slurm)
    hold = scheduler.observe(["n1", "n9"])["n9"]
    assert (hold.schedulable, hold.known, hold.owner) == (None, False, HoldOwner.NOBODY)
    for outcome in (scheduler.cordon("n9", OURS), scheduler.resume("n9")):
        assert outcome.result is ActionResult.UNKNOWN
        assert "must be its name in slurm.conf" in outcome.detail


def test_a_slurm_that_does_not_answer_is_left_alone_longer_each_time() -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm)
    slurm.away = "scontrol gave no answer within 10 s"
    begun = clock.monotonic()
    asked_at: list[float] = []
    while len(asked_at) < 9:
        before = slurm.asked
        # Word for word the same, also between two questions: what is new goes into the controller's record.
        assert scheduler.observe(["n1"]) == {"n1": SchedulerNodeState("n1", None, reason=slurm.away)}
        if slurm.asked > before:
            asked_at.append(clock.monotonic() - begun)
        clock.advance(0.25)
    waits = [later - sooner for sooner, later in pairwise(asked_at)]
    assert waits == [0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 15.0, 15.0]


def test_what_must_be_done_is_tried_while_slurm_is_left_alone() -> None:
    slurm = Slurm()
    scheduler, _ = centre(slurm)
    slurm.away = "away"
    scheduler.observe(["n1"])
    slurm.away = ""
    assert scheduler.cordon("n1", OURS).result is ActionResult.DONE


def test_one_answer_ends_the_pause_for_good() -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm)
    for _ in range(5):
        slurm.away = "away"
        scheduler.observe(["n1"])
        clock.advance(20.0)
        slurm.away = ""
        assert scheduler.observe(["n1"])["n1"].schedulable is True
    slurm.away = "away"
    scheduler.observe(["n1"])
    clock.advance(0.6)
    slurm.away = ""
    assert scheduler.observe(["n1"])["n1"].schedulable is True


def test_a_drain_that_slurm_forgot_is_not_taken_for_lifted() -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm)
    slurm.hold("n1", OURS)
    assert scheduler.observe(["n1"])["n1"].owner is HoldOwner.US
    clock.advance(2.0)
    slurm.lift("n1")
    slurm.start = clock.wall()
    hold = scheduler.observe(["n1"])["n1"]
    assert (hold.schedulable, hold.known) == (None, False)
    assert "lost the drain of n1" in hold.reason
    # Told once: whoever holds asks again.
    assert scheduler.observe(["n1"])["n1"] == SchedulerNodeState("n1", schedulable=True)


def test_each_forgotten_drain_is_known_where_the_nodes_are_looked_at_one_by_one() -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm)
    for node in ("n1", "n2"):
        slurm.hold(node, OURS)
    scheduler.observe(["n1", "n2"])
    clock.advance(2.0)
    slurm.start = clock.wall()
    for node in ("n1", "n2"):
        slurm.lift(node)
        assert scheduler.observe([node])[node].known is False


def test_a_drain_that_somebody_lifted_is_lifted() -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm)
    slurm.start = clock.wall()
    for _ in range(2):  # soon after Slurm began anew, too
        slurm.hold("n1", OURS)
        clock.advance(10.0)
        assert scheduler.observe(["n1"])["n1"].owner is HoldOwner.US
        clock.advance(5.0)
        slurm.lift("n1")
        assert scheduler.observe(["n1"])["n1"].schedulable is True


def test_a_clock_ahead_costs_an_operator_one_lift_at_most() -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm)
    slurm.start = clock.wall() - 60.0
    scheduler.observe(["n1"])
    slurm.start = clock.wall() + 3600.0
    lifted = []
    for _ in range(3):
        slurm.hold("n1", OURS)
        scheduler.observe(["n1"])
        slurm.lift("n1")
        lifted.append(scheduler.observe(["n1"])["n1"].schedulable)
    assert lifted == [None, True, True]


def test_a_slurm_that_has_just_begun_when_we_do_forgot_nothing() -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm)
    slurm.start = clock.wall()
    slurm.hold("n1", OURS)
    scheduler.observe(["n1"])
    slurm.lift("n1")
    assert scheduler.observe(["n1"])["n1"].schedulable is True


def test_a_drain_that_is_gone_is_nobodys_word_until_slurm_says_when_it_began() -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm)
    for began, expected in ((0.0, True), (clock.wall() + 10.0, None)):
        slurm.start = 0.0
        slurm.hold("n1", OURS)
        scheduler.observe(["n1"])
        clock.advance(10.0)
        slurm.lift("n1")
        slurm.start, slurm.start_untold = began, "scontrol gave no answer within 10 s"
        for _ in range(2):
            holds = scheduler.observe(["n1", "n2"])
            assert (holds["n1"].schedulable, holds["n1"].known, holds["n2"].schedulable) == (None, True, True)
            assert "scontrol gave no answer within 10 s" in holds["n1"].reason
        slurm.start_untold = ""
        hold = scheduler.observe(["n1"])["n1"]
        assert (hold.schedulable, hold.known) == (expected, bool(expected))


@pytest.mark.parametrize(("began_after", "forgotten"), [(60.0, ["n1"]), (-60.0, [])])
def test_a_new_leader_knows_what_the_last_one_held(began_after: float, forgotten: list[str]) -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm)
    scheduler.remember({"n1": clock.wall(), "n9": clock.wall()})
    slurm.start = clock.wall() + began_after
    clock.advance(120.0)
    holds = scheduler.observe(["n1", "n2"])
    assert [name for name, hold in holds.items() if not hold.known] == forgotten
    assert holds["n2"].schedulable is True
    assert scheduler.observe(["n1"])["n1"].schedulable is True


def test_work_had_its_time_when_our_drain_is_old_enough() -> None:
    slurm = Slurm()
    scheduler, clock = centre(slurm, requeue_after_s=600.0)
    slurm.queue = [SlurmJob("7", frozenset({"RUNNING"}), ("n1", "n2"))]
    slurm.hold("n1", OURS, clock.wall())
    slurm.hold("n2", "fan", clock.wall() - 9e6)
    assert not any(hold.evictable for hold in scheduler.observe(["n1", "n2"]).values())
    clock.advance(600.0)
    assert {name: hold.evictable for name, hold in scheduler.observe(["n1", "n2"]).items()} == {"n1": True, "n2": False}
    assert centre(slurm)[0].observe(["n1"])["n1"].evictable is False  # nobody configured it


def test_jobs_are_requeued_and_kept_off_the_node() -> None:
    slurm = Slurm()
    scheduler, _ = centre(slurm, requeue_after_s=600.0)
    slurm.hold("n1", OURS)
    here = frozenset({"RUNNING"})
    slurm.queue = [SlurmJob("7", here, ("n1",), ("n5",)), SlurmJob("8", here, ("n2",)), SlurmJob("9", here, ("n1",))]
    slurm.no_batch = {"9"}
    outcome = scheduler.evict("n1")
    assert outcome.result is ActionResult.FAILED  # so that it is tried again: the owner of 9 may have ended it by then
    assert "requeued from n1: 7" in outcome.detail
    assert "not requeued, contact their owners: 9 (" in outcome.detail
    assert slurm.queue[0] == SlurmJob("7", frozenset({"PENDING"}), (), ("n5", "n1"))
    assert slurm.queue[1].nodes == ("n2",)
    slurm.queue = slurm.queue[:1]
    assert scheduler.evict("n1").result is ActionResult.ALREADY


def test_nothing_is_requeued_from_a_node_that_is_not_ours() -> None:
    slurm = Slurm()
    slurm.queue = [SlurmJob("7", frozenset({"RUNNING"}), ("n1", "n2"))]
    slurm.hold("n1", "fan")
    scheduler, _ = centre(slurm, requeue_after_s=600.0)
    assert scheduler.evict("n1").result is ActionResult.REFUSED
    assert scheduler.evict("n2").result is ActionResult.REFUSED
    assert scheduler.evict("n9").result is ActionResult.UNKNOWN
    assert slurm.queue[0].nodes == ("n1", "n2")


def test_nodes_are_set_aside_once_and_given_back_once() -> None:
    slurm = Slurm()
    slurm.reserved = [Reservation("maintenance", ("n1",))]
    scheduler, _ = centre(slurm)
    assert scheduler.set_aside("pair", ("n1", "n2"), 30).result is ActionResult.DONE
    assert scheduler.set_aside("pair", ("n2", "n1"), 30).result is ActionResult.ALREADY
    refused = scheduler.set_aside("pair", ("n1",), 30)
    assert refused.result is ActionResult.REFUSED
    assert "gpu-healthd-pair holds n1, n2 until 1970-01-01T00:30:00Z; release it first" in refused.detail
    given_back = [scheduler.give_back("pair").result for _ in range(2)]
    assert given_back == [ActionResult.DONE, ActionResult.ALREADY]
    assert scheduler.give_back("maintenance").result is ActionResult.ALREADY  # ours would be gpu-healthd-maintenance
    assert [one.name for one in slurm.reserved] == ["maintenance"]


def test_two_who_set_aside_in_the_same_moment_agree() -> None:
    slurm = Slurm()
    slurm.between = lambda: setattr(slurm, "reserved", [Reservation("gpu-healthd-pair", ("n1",))])
    assert centre(slurm)[0].set_aside("pair", ("n1",), 30).result is ActionResult.ALREADY


@pytest.mark.parametrize("purpose", ["", "a b", "x" * 41, "a,b", "ü"])
def test_a_purpose_must_fit_into_a_name(purpose: str) -> None:
    with pytest.raises(ValueError, match="is not allowed in a reservation's name"):
        centre(Slurm())[0].set_aside(purpose, ("n1",), 30)


def test_slurm_says_where_its_nodes_stand() -> None:
    slurm = Slurm()
    scheduler, _ = centre(slurm)
    train = NodeLocation(partitions=("train",))
    assert scheduler.places() == {"n1": replace(train, switch="leaf1"), "n2": train}
    slurm.away = "away"
    assert scheduler.places() is None


def test_a_node_without_work_that_is_reserved_or_lacks_gpus_is_no_spare() -> None:
    slurm = Slurm()
    slurm.table["n1"] = replace(slurm.table["n1"], state=frozenset({"IDLE", "RESERVED"}))
    slurm.table["n2"] = replace(slurm.table["n2"], gpus=8, gpus_drained=1)
    scheduler, _ = centre(slurm)
    seen = scheduler.observe(["n1", "n2"])
    states = {name: (hold.schedulable, hold.set_aside) for name, hold in seen.items()}
    assert states == {"n1": (True, True), "n2": (True, True)}
    index, node = NodeIndex(), NodeRecord(node="n1", state=NodeState.HEALTHY, since=0.0)
    index.put(None, node, seen["n1"])
    assert "n1" not in index.free
    index.weigh(node, replace(seen["n1"], set_aside=False))
    assert "n1" in index.free


def test_a_free_node_is_seen_as_before() -> None:
    assert centre(Slurm())[0].observe(["n1"]) == {"n1": SchedulerNodeState("n1", schedulable=True)}
