"""What srun says of tasks that ended, among what the tasks themselves print to the same place."""

from __future__ import annotations

from healthd.launcher.backends.slurm_backend import parse_node_answers, parse_srun_message
from tests.fuzz.target import Target, text

WORLD = 64


def judge(data: bytes) -> None:
    """Never an error; only ranks of this world, and answers of these nodes."""
    said = text(data)
    for line in said.splitlines():
        if not all(0 <= end.rank < WORLD for end in parse_srun_message(line, WORLD)):
            raise AssertionError("the end of a rank that the job does not have")
    if not parse_node_answers(said, ("n1", "n2")).keys() <= {"n1", "n2"}:
        raise AssertionError("the answer of a node that was not asked")


TARGET = Target(
    judge,
    (
        b"srun: error: n1: tasks 0-2,5: Exited with exit code 90\n",
        b"srun: error: n2: task 3: Killed\nsrun: error: n2: task 4: Segmentation fault (core dumped)",
        b'noise\n{"node":"n1","pages":[]}\n{"node":["n2"]}\n',
        b"srun: error: n1: tasks 5-,-3,9999999999999999999: Exited with exit code 99999999999",
    ),
    bytes_max=512,
)
