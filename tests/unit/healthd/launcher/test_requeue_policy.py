from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.backends.slurm_requeue import requeue_job
from healthd.launcher.decisions.requeue_policy import (
    WAIT_SECONDS_MAX,
    RequeueDecision,
    compute_requeue_delay,
    parse_job_fields,
    parse_partition_nodes,
)
from healthd.launcher.scheduler_backend import BackendError

JOB = "JobId=7 JobName=a Partition=train ReqNodeList=(null) ExcNodeList={known} NodeList=n1 NumNodes=1 Features={features}"
NODES = "".join(f"n{number}|8|gpu:8|rack{number}\n" for number in range(1, 5)) + "login|2|(null)|rack1\n"


class Slurm:
    """Answers as Slurm does, and notes what it is told. `ends`: so many commands end with us before one is heard.

    `state`: `scontrol requeue` fails, and the job is in this state then.
    """

    def __init__(
        self, *, known: str = "(null)", features: str = "(null)", extra: str = "", ends: int = 0, state: str = ""
    ) -> None:
        self.job = JOB.format(known=known, features=features) + extra
        self.ends = ends
        self.state = state
        self.told: list[str] = []
        self.planned: list[RequeueDecision] = []  # what was announced before Slurm was told anything

    def __call__(self, argv: Sequence[str]) -> str:
        if argv[0] == "sinfo":
            return NODES
        if argv[1] == "show":
            return "\n".join(argv[3].split(","))
        if argv[1] == "-o":
            return self.job
        if argv[1] == "update" and self.ends:
            self.ends -= 1
            raise BackendError("scontrol: ended by signal 15")
        self.told.append(" ".join(argv[1:]))
        if argv[1] == "requeue" and self.state:
            self.job += f" JobState={self.state}"
            raise BackendError("scontrol requeue 7: exit -15")
        return ""

    def back(self, allocation: str, refused: str, in_vain: int = 0) -> RequeueDecision:
        return requeue_job(self, "7", allocation.split(), refused.split(), in_vain, self.announce)

    def announce(self, plan: RequeueDecision) -> None:
        assert self.told == []
        self.planned.append(plan)


def test_the_refused_node_joins_what_the_owner_excludes() -> None:
    slurm = Slurm(known="n4")

    back = slurm.back("n1", "n2 n1")

    assert slurm.told == ["requeue 7", "update jobid=7 ExcNodeList=n1,n2,n4"]
    assert [back] == slurm.planned == [RequeueDecision(without=("n1", "n2"))]


@pytest.mark.parametrize(
    ("slurm", "allocation", "why"),
    [
        (Slurm(), "n1 n2 n3 n4", "only 3 nodes of the required 4"),
        (Slurm(known="n3,n4"), "n1 n2", "only 1 node of the required 2"),
        (Slurm(features="rack1"), "n1", "only 0 nodes of the required 1"),  # the only one of its rack
        (Slurm(extra=" Reservation=tests"), "n1", "it is in a reservation"),
    ],
)
def test_a_job_that_could_not_be_placed_any_more_waits_instead(slurm: Slurm, allocation: str, why: str) -> None:
    """The login node is none like them."""
    back = slurm.back(allocation, "n1", in_vain=2)

    assert slurm.told == ["requeue 7", "update jobid=7 StartTime=now+120"]
    assert (back.without, back.wait_seconds) == ((), 120)
    assert why in back.text
    assert slurm.planned == [back]


def test_a_command_that_slurm_ends_together_with_us_is_given_again() -> None:
    slurm = Slurm(ends=2)
    assert slurm.back("n1", "n1").text == ", from now on without n1"
    assert slurm.told == ["requeue 7", "update jobid=7 ExcNodeList=n1"]


@pytest.mark.parametrize("state", ["COMPLETING", "PENDING"])
def test_a_requeue_counts_though_its_command_is_ended_before_it_has_the_answer(state: str) -> None:
    slurm = Slurm(state=state)
    assert slurm.back("n1", "n1").text == ", from now on without n1"
    assert slurm.told == ["requeue 7", "update jobid=7 ExcNodeList=n1"]


def test_a_requeue_that_slurm_refuses_is_an_error() -> None:
    with pytest.raises(BackendError, match="scontrol requeue 7"):
        Slurm(state="RUNNING").back("n1", "n1")


def test_what_slurm_does_not_take_is_said_and_the_job_waits_instead() -> None:
    slurm = Slurm(ends=3)
    back = slurm.back("n1", "n1", in_vain=1)
    assert slurm.planned == [RequeueDecision(without=("n1",))]
    assert back.wait_seconds == 60
    assert "signal 15" in back.text
    assert slurm.told[-1] == "update jobid=7 StartTime=now+60"


def test_a_job_that_refuses_nobody_is_only_queued_again() -> None:
    slurm = Slurm()
    assert slurm.back("n1", "").text == ""
    assert slurm.told == ["requeue 7"]


def test_the_wait_doubles_up_to_half_an_hour() -> None:
    assert [compute_requeue_delay(times) for times in (0, 1, 2, 3, 6, 7, 10**6)] == [0, 60, 120, 240, 1800, 1800, 1800]


@given(st.integers())
def test_no_count_breaks_the_wait(times: int) -> None:
    assert 0 <= compute_requeue_delay(times) <= WAIT_SECONDS_MAX


@given(st.text(), st.booleans())
def test_nothing_that_slurm_says_breaks_the_readers(said: str, with_features: bool) -> None:  # noqa: FBT001 - hypothesis gives it
    assert all(len(peer.kind) in (2, 3) for peer in parse_partition_nodes(said, with_features=with_features))
    assert "" not in parse_job_fields(said).values()
