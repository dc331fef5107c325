"""The judge, on days that are written out by hand."""

from __future__ import annotations

from pathlib import Path

import msgspec

from bench.day import day_report
from bench.day.node_step_breakdown import CHECKPOINT_EVERY
from bench.day.records import HELD_IN_MEMORY, Drain, Happened, Look, RankLine, Records, StepLine, read_run_records
from bench.day.run_judgement import Account, judge_run

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
    return judge_run(Records(told, ranks or [], {"large": lines}, looks(100, held or {}), drains or []))


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

    judged = judge_run(Records(told, [], {"large": steps((0, 1, 400))}, merged, []))

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
    table = day_report.render_result_table({"with": judged}, 8)
    assert "| times a rank was replaced while the job went on | 1 |" in table
    assert "| times a job was started again | 0 |" in table
    assert "with a spare in the rank's place, 0 steps lost" in day_report.render_stories({"with": judged})


def test_a_step_that_is_trained_again_after_a_swap_is_lost_and_has_the_same_loss() -> None:
    judged = day([], replaced(again=2))

    assert (judged.lost, judged.same_losses) == (4, True)
    assert (
        "| steps lost when ranks were replaced, when jobs were started again | 2, 0 |"
        in day_report.render_result_table({"with": judged}, 8)
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


def resized(*parts: tuple[float, int, int], full: int = 2) -> list[StepLine]:
    """A job of two nodes: generations that begin at a time with a number of nodes and make so many steps, slower with fewer nodes."""
    lines: list[StepLine] = []
    for generation, (begin, world, count) in enumerate(parts):
        for n in range(count):
            at, step = begin + 0.25 * full / world * n, len(lines) + 1
            lines.append(StepLine(at, 1, step, f"loss {step}", world, generation, full))
    return lines


def test_a_step_of_fewer_nodes_is_as_much_work_and_takes_longer() -> None:
    judged = day([], resized((0, 2, 80), (21, 1, 80), (61.5, 2, 154)))

    assert (judged.useful, judged.lost) == (2 * 314, 0)
    assert round(judged.wanted) == 800
    assert round(judged.breakdown.fewer) == 2 * 80
    assert round(judged.breakdown.swaps) == 12  # three quarters of a second at each change, beyond the step itself
    assert abs(judged.useful + judged.breakdown.total - judged.wanted) <= 4


def test_a_job_that_always_has_fewer_nodes_is_held_to_the_pace_of_all() -> None:
    judged = day([], resized((0, 1, 200)))

    assert round(judged.effective, 2) == 0.5
    assert round(judged.breakdown.fewer / judged.wanted, 2) == 0.5


def test_a_job_that_shrinks_and_grows_is_told_so() -> None:
    happened = [strike(20, "GPU lost"), Happened(20, "acts", "n1", 1, acts="hang")]
    judged = day(happened, resized((0, 2, 80), (21, 1, 80), (61.5, 2, 154)))

    table = day_report.render_result_table({"with": judged}, 8)
    assert "| times a rank was replaced while the job went on | 0 |" in table
    assert "| times a job went on with fewer nodes, with more again | 1, 1 |" in table
    assert "trained again after 1.0 s with fewer nodes, 0 steps lost" in day_report.render_stories({"with": judged})
    assert "| fewer nodes | 160 (20.0%) |" in day_report.render_breakdown({"with": judged})


def test_a_job_that_pauses_to_grow_was_not_stopped_by_a_fault() -> None:
    happened = [strike(40, "GSP stopped"), Happened(40, "acts", "n1", 1, acts="hang")]
    [told] = day(happened, resized((0, 2, 80), (21, 1, 80), (61.5, 2, 154))).told

    assert told.lost is None


def test_a_job_that_stands_at_the_end_goes_on_from_the_newest_step_that_is_kept(tmp_path: Path) -> None:
    for name in ("strikes.jsonl", "ranks.jsonl", "scheduler.jsonl", "slurmctld.log"):
        (tmp_path / name).touch()
    for job, step in (("large", 360), ("middle", 720), ("small", 0)):
        (tmp_path / "checkpoints" / job / f"step-{step:09}").mkdir(parents=True)
    assert read_run_records(tmp_path).saved == {"large": 360, "middle": 720, "small": 0}

    (tmp_path / HELD_IN_MEMORY).write_text('{"large": 400, "middle": 700}')

    assert read_run_records(tmp_path).saved == {"large": 400, "middle": 720, "small": 0}
