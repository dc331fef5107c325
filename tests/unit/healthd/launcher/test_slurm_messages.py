from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.backends.slurm_backend import parse_srun_message, parse_task_numbers
from healthd.launcher.decisions.relaunch_policy import RankEnd
from healthd.launcher.rank import fill_torch_variables


@pytest.mark.parametrize(
    ("line", "ends"),
    [
        ("srun: error: node2: task 1: Exited with exit code 90", [RankEnd(1, "node2", 90)]),
        ("srun: error: n3: tasks 4-5,7: Exited with exit code 91", [RankEnd(r, "n3", 91) for r in (4, 5, 7)]),
        ("srun: error: node1: task 0: Killed", [RankEnd(0, "node1", -9)]),
        ("srun: error: node1: task 0: Segmentation fault (core dumped)", [RankEnd(0, "node1", -11)]),
        ("srun: error: node1: task 0: Something new", [RankEnd(0, "node1", 1)]),
        ("srun: Job step aborted: Waiting up to 2 seconds for job step to finish.", []),
        ("srun: error: Node failure on node2", []),
        ("Traceback (most recent call last):", []),
        ("", []),
    ],
)
def test_sruns_messages_name_the_ranks_that_ended(line: str, ends: list[RankEnd]) -> None:
    assert parse_srun_message(line, 8) == ends


@given(st.text())
def test_no_line_breaks_the_reader(line: str) -> None:
    assert isinstance(parse_srun_message(line, 8), list)


@given(st.text("0123456789,-", max_size=8))
def test_no_list_of_tasks_breaks_the_reader(tasks: str) -> None:
    assert isinstance(parse_srun_message(f"srun: error: n1: tasks {tasks}: Killed", 8), list)


def test_lists_of_tasks() -> None:
    assert parse_task_numbers("0-2,5", 8) == [0, 1, 2, 5]
    assert parse_task_numbers("0-99999999", 3) == [0, 1, 2]


def test_slurms_place_becomes_torchs() -> None:
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "1", "SLURMD_NODENAME": "n2", "HOME": "/x"}

    assert fill_torch_variables(slurm) == slurm | {
        "RANK": "3",
        "WORLD_SIZE": "4",
        "LOCAL_RANK": "1",
        "HEALTHD_NODE": "n2",
    }
    assert fill_torch_variables({"RANK": "0"}) == {"RANK": "0"}


def test_a_process_per_node_is_told_its_node_and_no_rank() -> None:
    slurm = {"SLURM_PROCID": "3", "SLURM_NTASKS": "4", "SLURM_LOCALID": "0", "SLURMD_NODENAME": "n2"}
    node = {"HEALTHD_NODE": "n2", "NODE_RANK": "3", "PET_NODE_RANK": "3"}

    assert fill_torch_variables(slurm | {"HEALTHD_PER_NODE": "1"}) == slurm | node
    local = {"HEALTHD_PER_NODE": "1", "RANK": "1", "LOCAL_RANK": "0", "HEALTHD_NODE": "b", "MASTER_PORT": "5"}
    assert fill_torch_variables(local) == {
        "HEALTHD_NODE": "b",
        "MASTER_PORT": "5",
        "NODE_RANK": "1",
        "PET_NODE_RANK": "1",
    }
