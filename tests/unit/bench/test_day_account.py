"""The judge, on days that are written out by hand."""

from __future__ import annotations

import msgspec

from bench.day import page
from bench.day.account import Account, account
from bench.day.breakdown import CHECKPOINT_EVERY
from bench.day.records import Drain, Happened, Look, RankLine, Records, StepLine

OURS = "gpu-healthd: inc-1 gpu-lost"


def steps(*attempts: tuple[float, int, int]) -> list[StepLine]:
    """Of a job of two nodes: attempts that begin at a time with a step, and how many steps of a quarter second they make."""
    return [
        StepLine(at + 0.25 * n, attempt, first + n, f"loss {first + n}", 2)
        for attempt, (at, first, count) in enumerate(attempts, 1)
        for n in range(count)
    ]


def looks(until: float, held: dict[str, tuple[float, float, str]]) -> list[Look]:
    """A look each second; `held`: from when until when each node is drained, and the reason."""

    def state(node: str, at: float) -> tuple[str, str]:
        begin, end, reason = held.get(node, (0.0, 0.0, ""))
        return ("drained", reason) if begin <= at < end else ("allocated", "")

    return [Look(float(at), {n: state(n, at) for n in ("n1", "n2", "n3")}, ("large",)) for at in range(round(until))]


def day(
    happened: list[Happened],
    lines: list[StepLine],
    *,
    held: dict[str, tuple[float, float, str]] | None = None,
    drains: list[Drain] | None = None,
    ranks: list[RankLine] | None = None,
) -> Account:
    """A day of 100 s."""
    told = [Happened(0, "begin", ""), *happened, Happened(100, "end", "")]
    return account(Records(told, ranks or [], {"large": lines}, looks(100, held or {}), drains or []))


def strike(at: float, kind: str, node: str = "n1", number: int = 1) -> Happened:
    return Happened(at, "strike", node, number, kind, "large")


def test_a_day_without_faults_is_whole() -> None:
    judged = day([], steps((0, 1, 400)))

    assert (judged.useful, judged.lost, judged.stops, judged.wrong) == (800, 0, [], [])
    assert judged.effective > 0.99


def test_a_fault_is_told_from_its_strike_to_the_next_step() -> None:
    lost = strike(20, "GPU lost")
    acts = Happened(20, "acts", "n1", 1, acts="hang")
    judged = day(
        [lost, acts],
        steps((0, 1, 80), (40, 61, 240)),
        held={"n1": (21, 100, OURS)},
        drains=[Drain(20.3, "n1", OURS)],
    )

    [told] = judged.told
    assert (round(told.held_s or 0, 1), told.held_by, told.resumed_s, told.lost) == (0.3, "gpu-healthd", 20, 20)
    assert judged.lost == 40
    assert judged.wrong == []
    assert max(ours for _, _, ours in judged.out) == 1


def test_a_machine_that_goes_down_is_held_by_the_scheduler_itself() -> None:
    down = [strike(20, "machine goes down"), Happened(20, "off", "n1")]

    [told] = day(down, steps((0, 1, 400)), held={"n1": (35, 50, "Not responding")}).told

    assert (told.held_s, told.held_by) == (15, "Slurm")


def test_a_node_that_is_held_after_a_second_fault_was_held_for_the_first_as_well() -> None:
    both = [strike(20, "GPU lost"), strike(21, "channel cleaned up", number=2), strike(25, "GSP stopped", number=3)]
    told = day(both, steps((0, 1, 400)), drains=[Drain(26, "n1", OURS)]).told

    assert [one.held_s for one in told] == [6, None, 1]


def test_a_second_fault_on_a_node_that_is_out_and_a_job_that_stands_still_is_told_so() -> None:
    faults = [strike(20, "GPU lost"), strike(30, "GSP stopped", number=2)]

    _, second = day(faults, steps((0, 1, 80), (60, 61, 160)), held={"n1": (21, 100, OURS)}).told

    assert (second.held_by, second.standing, second.lost) == ("already", True, None)


def test_a_sound_node_that_a_program_takes_out_is_wrong_and_one_that_a_person_takes_is_not() -> None:
    mistake = strike(20, "program's mistake on one rank")
    by_us = day([mistake], steps((0, 1, 400)), held={"n1": (30, 60, OURS)})
    by_hand = day([mistake], steps((0, 1, 400)), held={"n1": (30, 60, "a person: looks odd")})

    assert [hold.node for hold in by_us.wrong] == ["n1"]
    assert by_hand.wrong == []


def test_a_fault_from_before_its_node_came_back_excuses_nothing() -> None:
    fault = [strike(10, "GPU lost"), Happened(10, "acts", "n1", 1, acts="hang"), Happened(39, "well", "n1")]
    once = looks(100, {"n1": (11, 40, OURS)})
    again = looks(100, {"n1": (70, 90, OURS)})
    merged = [b if b.at >= 60 else a for a, b in zip(once, again, strict=True)]
    told = [Happened(0, "begin", ""), *fault, Happened(100, "end", "")]

    judged = account(Records(told, [], {"large": steps((0, 1, 400))}, merged, []))

    assert [hold.at for hold in judged.wrong] == [70]


def test_ranks_that_start_on_a_broken_node_are_counted_until_it_is_well() -> None:
    happened = [
        strike(10, "GSP stopped"),
        Happened(10, "acts", "n1", 1, acts="hang"),
        Happened(50, "well", "n1"),
    ]
    ranks = [
        RankLine(at, "starts", "large", 1, node, 0) for at, node in ((5, "n1"), (20, "n1"), (21, "n2"), (60, "n1"))
    ]

    judged = day(happened, steps((0, 1, 400)), ranks=ranks)

    assert (judged.missed, judged.missed_nodes) == (1, 1)
    assert judged.told[0].bad_starts == 1


def test_what_passes_by_itself_breaks_no_node() -> None:
    happened = [strike(10, "program's mistake on one rank"), Happened(10, "acts", "n1", 1, acts="crash")]

    assert day(happened, steps((0, 1, 400)), ranks=[RankLine(20, "starts", "large", 2, "n1", 0)]).missed == 0


def test_a_job_that_stands_at_the_end_is_a_stop_without_an_end() -> None:
    judged = day([], steps((0, 1, 200)))

    [stop] = judged.stops
    assert (stop.resumed_at, stop.lost) == (None, 200)
    assert (judged.useful, judged.lost) == (0, 400)


def test_a_step_that_comes_to_another_loss_the_second_time_is_seen() -> None:
    lines = steps((0, 1, 80), (40, 61, 240))
    changed = [*lines[:-200], StepLine(60, 2, 61, "another", 2), *lines[-200:]]

    assert day([], lines).same_losses
    assert not day([], changed).same_losses


def replaced(*, again: int = 0, loss: str = "") -> list[StepLine]:
    """A rank is replaced after 80 steps, `again` of which are trained once more; the last of those to another `loss`."""
    before = steps((0, 1, 80))
    after = [
        StepLine(21 + 0.25 * n, 1, 81 - again + n, loss or f"loss {81 - again + n}", 2, generation=1)
        for n in range(316)
    ]
    return [*before, *after]


def test_a_replaced_rank_is_no_restart() -> None:
    judged = day([strike(20, "GPU lost"), Happened(20, "acts", "n1", 1, acts="hang")], replaced())

    [stop] = judged.stops
    assert (stop.swap, stop.lost, round((stop.resumed_at or 0) - stop.at, 2)) == (True, 0, 1.25)
    assert (judged.lost, judged.told[0].swap, judged.same_losses) == (0, True, True)
    table = page.table({"with": judged}, 8)
    assert "| times a rank was replaced while the job went on | 1 |" in table
    assert "| times a job was started again | 0 |" in table
    assert "with a spare in the rank's place, 0 steps lost" in page.stories({"with": judged})


def test_a_step_that_is_trained_again_after_a_swap_is_lost_and_has_the_same_loss() -> None:
    judged = day([], replaced(again=2))

    assert (judged.lost, judged.same_losses) == (4, True)
    assert "| steps lost when ranks were replaced, when jobs were started again | 2, 0 |" in page.table(
        {"with": judged}, 8
    )
    assert not day([], replaced(again=2, loss="another")).same_losses


def test_the_node_steps_that_were_not_made_have_causes_that_add_up() -> None:
    for lines in (steps((0, 1, 400)), steps((0, 1, 80), (40, 61, 240)), replaced(again=2)):
        judged = day([], lines)
        assert abs(judged.useful + judged.breakdown.total - judged.wanted) <= 4
    restarted = day([], steps((0, 1, 80), (40, 61, 240))).breakdown
    assert (round(restarted.restarts), restarted.again, round(restarted.swaps)) == (160, 40, 0)
    assert round(day([], replaced()).breakdown.swaps) == 8
    standing = day([], steps((0, 1, 200))).breakdown
    assert round(standing.standing) == 400


def test_a_pause_for_a_checkpoint_is_told_from_a_slow_step() -> None:
    lines = steps((0, 1, 370))
    paused = [
        line if line.step <= CHECKPOINT_EVERY else msgspec.structs.replace(line, at=line.at + 1) for line in lines
    ]
    slow = [line if line.step <= 100 else msgspec.structs.replace(line, at=line.at + 1) for line in lines]

    assert [round(day([], each).breakdown.checkpoints) for each in (paused, slow)] == [8, 0]
    assert [round(day([], each).breakdown.slower) for each in (paused, slow)] == [0, 8]
