"""Further steps of a Slurm job, on nodes that have returned."""

from __future__ import annotations

from healthd.launcher.plan import RankEnd
from healthd.launcher.rank import FIRST_MEMBER, LOCAL_RANKS, placed
from healthd.launcher.slurm_steps import SlurmSteps
from healthd.trainer.rendezvous import ADDRESS, MEMBER, SPARE


def test_processes_of_a_later_step_count_on_and_take_the_empty_places_of_their_node() -> None:
    slurm = {"SLURM_PROCID": "1", "SLURM_NTASKS": "2", "SLURM_LOCALID": "1", "SLURMD_NODENAME": "n1"}
    ours = {ADDRESS: "n0:1", "WORLD_SIZE": "8", FIRST_MEMBER: "10", LOCAL_RANKS: "0,3"}

    found = placed(slurm | ours)

    assert (found[MEMBER], found["LOCAL_RANK"], found[SPARE], found["WORLD_SIZE"]) == ("11", "3", "1", "8")


class ScriptedStep:
    """A step of two tasks, the second of which has ended."""

    def __init__(self) -> None:
        self.killed: list[int] = []

    def ended(self) -> list[RankEnd]:
        return [RankEnd(1, "n", 3)]

    def over(self) -> bool:
        return bool(self.killed)

    def terminate(self) -> None:
        self.killed.append(-15)

    def kill(self) -> None:
        self.killed.append(-9)

    def kill_one(self, task: int) -> None:
        self.killed.append(task)


def test_steps_are_one_run_with_numbers_that_go_on() -> None:
    first, later = ScriptedStep(), ScriptedStep()
    steps = SlurmSteps(first, lambda _node, _first, _places: later)
    steps.start_more("n1", 4, [0, 1])
    assert [end.rank for end in steps.ended()] == [1, 5]
    steps.kill_one(5)
    assert (first.killed, later.killed) == ([], [1])
    assert not steps.over()
    steps.terminate()
    steps.kill()
    assert (first.killed, later.killed) == ([-15, -9], [1, -15, -9])
    assert steps.over()
