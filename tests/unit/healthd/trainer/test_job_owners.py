"""Several users claim one job: each one's ranks are ordered, shown and judged by themselves, and nobody's hide another's."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.checks.beacon_checks import BeaconCheck
from healthd.checks.training_checks import Limits, TrainingCheck
from healthd.collectors.beacons import BeaconCollector
from healthd.findings.facts import Clear, Moment, Raise
from healthd.orders.order_task import make_order_update
from healthd.orders.trainer_order import TrainerTask
from healthd.samples.rank_steps import RankSteps, StepFacts
from healthd.thresholds import load_thresholds
from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon import Beacon, RankPlacement, open_beacon, read_page
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.beacon_page import Acknowledgement, MailboxOrder, OrderOutcome
from healthd.trainer.beacons.job_owners import JobClaim, JobClaimants, find_job_claimants
from vocabulary.finding import Severity
from vocabulary.order import Order, OrderKind, OrderState

ALICE, BOB = 1001, 1002
NOW = 1_700_000_000.0
PLACE = RankPlacement("job-7", 1, 0, 2, 0, "n1")
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")


class Users:
    """Processes of several users, each with a page."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._children: list[int] = []

    def claim(self, uid: int, place: RankPlacement = PLACE, *, answers: OrderOutcome | None = None) -> str:
        """Another user's process publishes a page and lives on; `answers` forges that it was ordered and did so."""
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                beacon = open_beacon(self.directory, place)
                assert isinstance(beacon, Beacon)
                if answers is not None:
                    beacon.acknowledge(Acknowledgement("o1", answers, NOW, 10**18, NOW, 1e18, "/forged", NOW, "forged"))
                    forged = MailboxOrder("o1", "abort", "forged", (), NOW + 60)._asdict()
                    frame = beacon_page.pack_frame("mailbox", 1, forged, beacon_page.MAILBOX_BYTES)
                    with Path(beacon.path).open("r+b") as file:
                        file.seek(beacon_page.MAILBOX_AT)
                        file.write(frame)
                os.write(sink, beacon.path.encode())
                time.sleep(600)  # until it is killed
            finally:
                os._exit(1)
        os.close(sink)
        self._children.append(child)
        with os.fdopen(source, "rb", buffering=0) as told:
            path = told.read(4096).decode()
        assert path, "the child made no page"
        return path

    def end(self, path: str) -> None:
        """The process of that page dies."""
        pid = read_page(path).identity.pid
        os.kill(pid, signal.SIGKILL)
        os.waitpid(pid, 0)
        self._children.remove(pid)

    def close(self) -> None:
        for child in self._children:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)


@pytest.fixture
def users() -> Iterator[Users]:
    """In a directory where any user may go; pytest's own are closed to others."""
    done = subprocess.run(["mktemp", "-d"], capture_output=True, text=True, check=True)
    parent = Path(done.stdout.strip())
    parent.chmod(0o755)
    prepare_directory(str(parent / "beacons"))
    several = Users(str(parent / "beacons"))
    yield several
    several.close()
    subprocess.run(["rm", "-r", "--", str(parent)], check=True)


def order(attempt: int | None = 1) -> Order:
    return Order(
        id="o1",
        kind=OrderKind.CHECKPOINT_THEN_EJECT,
        node="n1",
        issued_at=NOW,
        expires_at=NOW + 60,
        incident="i",
        reason="r",
        job=PLACE.job,
        attempt=attempt,
    )


def task(users: Users, each: Order) -> TrainerTask:
    return TrainerTask(each, make_order_update(each, OrderState.RECEIVED, NOW, ""), users.directory)


SAVED = Acknowledgement("o1", OrderOutcome.LEFT, NOW, 7, NOW + 1, NOW + 2, "/mine/7", NOW + 3)


@NEEDS_ROOT
@pytest.mark.parametrize("attempt", [1, None])
@pytest.mark.parametrize("first", [True, False], ids=["forger first", "owner first"])
def test_every_users_ranks_are_ordered_and_none_answers_for_another(
    users: Users, attempt: int | None, *, first: bool
) -> None:
    forgeries = [PLACE._replace(rank=1), PLACE._replace(attempt=999)]
    forged = [users.claim(BOB, place) for place in forgeries * first]
    mine = open_beacon(users.directory, PLACE)
    forged += [users.claim(BOB, place) for place in forgeries * (not first)]
    ordered = task(users, order(attempt))

    update = ordered.step(NOW)

    assert update is not None
    assert (update.state, update.data["users"]) == (OrderState.RUNNING, f"{os.geteuid()} {BOB}")
    assert mine.poll() is not None
    told = [read_page(path).order is not None for path in forged]
    assert told == ([True, False] if attempt else [False, True]), "each user's attempt is his own"

    mine.acknowledge(SAVED)
    ordered.step(NOW)
    end = ordered.step(NOW + 61)
    assert end is not None
    assert end.state is OrderState.FAILED
    rank = 1 if attempt else 0
    pid = read_page(forged[0 if attempt else 1]).identity.pid
    assert end.detail == (
        f"user {os.geteuid()}: succeeded: 1 rank saved and left; "
        f"user {BOB}: failed: still running when the order expired: rank {rank} (pid {pid})"
    )
    assert end.data[f"user.{os.geteuid()}.path"] == "/mine/7"
    assert "path" not in end.data
    mine.close()


@NEEDS_ROOT
def test_a_forged_answer_ends_nothing_and_says_nothing_of_the_owners_ranks(users: Users) -> None:
    users.claim(BOB, PLACE._replace(rank=1), answers=OrderOutcome.LEFT)
    mine = open_beacon(users.directory, PLACE)
    ordered = task(users, order())
    ordered.step(NOW)
    update = ordered.step(NOW)
    assert update is not None
    assert (update.state, update.detail) == (OrderState.RUNNING, "1 rank to go")

    mine.acknowledge(SAVED._replace(outcome=OrderOutcome.FAILED, saved_at=0.0, detail="disk full"))
    end = ordered.step(NOW)

    assert end is not None
    assert end.state is OrderState.FAILED, "Bob's success is not the job's"
    assert f"user {os.geteuid()}: failed: rank 0 failed disk full" in end.detail
    assert not {"saved_at", "agreed_step", "path"} & end.data.keys(), "no figure of his is the job's, either"
    mine.close()


@NEEDS_ROOT
def test_all_users_ranks_saved_is_a_success_with_times_that_were(users: Users) -> None:
    users.claim(BOB, PLACE._replace(rank=1), answers=OrderOutcome.LEFT)
    mine = open_beacon(users.directory, PLACE)
    ordered = task(users, order())
    ordered.step(NOW)
    mine.acknowledge(SAVED)
    end = ordered.step(NOW + 9)
    assert end is not None
    assert (end.state, end.data["saved_at"]) == (OrderState.SUCCEEDED, NOW + 9)
    assert "path" not in end.data
    mine.close()


@NEEDS_ROOT
def test_a_forged_success_does_not_stand_for_a_page_that_cannot_be_read(users: Users) -> None:
    mine = users.claim(ALICE)
    with Path(mine).open("r+b") as file:
        file.seek(beacon_page.IDENTITY_AT + 20)
        file.write(b"damaged")
    users.claim(BOB, PLACE._replace(rank=1), answers=OrderOutcome.LEFT)
    ordered = task(users, order())
    ordered.step(NOW)
    end = ordered.step(NOW)
    assert end is not None
    assert end.state is OrderState.FAILED
    assert f"user {ALICE}: failed: beacon {mine}: identity" in end.detail
    assert f"user {BOB}: succeeded" in end.detail


@NEEDS_ROOT
def test_who_comes_after_the_order_has_no_part_in_it_though_the_daemon_starts_anew(users: Users) -> None:
    mine = open_beacon(users.directory, PLACE)
    update = task(users, order()).step(NOW)
    assert update is not None
    users.claim(BOB, PLACE._replace(rank=1), answers=OrderOutcome.SEEN)
    mine.acknowledge(SAVED)

    again = TrainerTask(order(), update, users.directory)
    again.step(NOW)
    end = again.step(NOW)

    assert end is not None
    assert (end.state, end.detail) == (OrderState.SUCCEEDED, "1 rank saved and left")
    assert end.data["agreed_step"] == 7
    mine.close()


@NEEDS_ROOT
def test_whom_the_scheduler_placed_is_ordered_alone(users: Users, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = users.claim(ALICE)
    forged = users.claim(BOB, PLACE._replace(rank=1), answers=OrderOutcome.SEEN)
    monkeypatch.setattr(
        "healthd.trainer.beacons.job_owners.is_placed_by_scheduler", lambda claim, _: claim.uid == ALICE
    )
    ordered = task(users, order())
    update = ordered.step(NOW)
    assert update is not None
    assert (update.data["users"], update.data["ranks"]) == (str(ALICE), 1)
    assert read_page(mine).order is not None
    assert read_page(forged).order_sequence == 1, "nothing of ours"
    sample = BeaconCollector(Path(users.directory)).read(NOW)
    assert [rank.rank for rank in sample.ranks] == [0]
    assert f"user {BOB} also claims the job, but it belongs to user {ALICE}:" in sample.disputed[PLACE.job]
    users.end(mine)
    end = ordered.step(NOW)
    assert end is not None
    assert (end.state, end.detail) == (OrderState.FAILED, "rank 0 ended without an answer")


@NEEDS_ROOT
def test_who_claims_a_job_is_reported_and_hides_nobody(users: Users) -> None:
    users.claim(ALICE)
    collector, check = BeaconCollector(Path(users.directory)), BeaconCheck()
    assert check.judge(collector.read(NOW)) == []
    forged = users.claim(BOB, PLACE._replace(attempt=999, rank=1))

    sample = collector.read(NOW)

    assert [(rank.attempt, rank.rank) for rank in sample.ranks] == [(1, 0), (999, 1)]
    assert [(rank.attempt, rank.user) for rank in sample.steps] == [(1, ALICE), (999, BOB)]
    (fact,) = check.judge(sample)
    assert isinstance(fact, Raise)
    assert (fact.check, fact.code, fact.component.name, fact.severity) == (
        "beacon",
        "owners",
        "job-7",
        Severity.WARNING,
    )
    assert f"users {ALICE}, {BOB} claim the job, and no scheduler reports the owner" in fact.summary

    users.end(forged)
    (over,) = check.judge(collector.read(NOW))
    assert isinstance(over, Clear)


def test_watchdogs_do_not_mix_the_ranks_of_two_users() -> None:
    check = TrainingCheck(load_thresholds().section("training", Limits))

    def rank(user: int, completed: int) -> RankSteps:
        loss = math.nan if user == BOB else 1.0
        new = (StepFacts(completed - 1, completed - 1, float(completed), 1.0, loss=loss),)
        return RankSteps("j", 1, 0, 2, user, True, completed, completed, "step", "", new, user)

    for n in range(1, 3):
        held = check.judge([rank(ALICE, n), rank(BOB, n)], Moment(1e9 + n, float(n)))
    raised = [fact for fact in held if isinstance(fact, Raise)]
    assert [(fact.code, fact.component.name, fact.evidence["job"]) for fact in raised] == [
        ("loss_not_finite", f"j.1 of user {BOB}", "j")
    ]
    alone = [fact for fact in check.judge([rank(BOB, 3)], Moment(1e9 + 3, 3.0)) if isinstance(fact, Raise)]
    assert [fact.component.name for fact in alone] == ["j.1"]


def test_no_user_fills_the_watch_with_jobs_that_he_invents() -> None:
    check = TrainingCheck(load_thresholds().section("training", Limits))
    mine = RankSteps("train", 1, 0, 1, 1, alive=True, step=0, completed=0, phase="step", user=ALICE)
    many = [mine._replace(job=f"!{n}", user=BOB) for n in range(500)]
    check.judge([*many, mine], Moment(0, 0))
    held = check.judge([*many, mine], Moment(5000, 5000))
    assert "train.1" in {fact.component.name for fact in held}


@NEEDS_ROOT
def test_a_taken_name_keeps_no_rank_from_its_page(users: Users) -> None:
    squatted = users.claim(BOB)
    mine = users.claim(ALICE)

    assert mine != squatted
    assert (read_page(squatted).uid, read_page(mine).uid) == (BOB, ALICE)


def claims(tmp_path: Path, *each: tuple[str, int, bool]) -> list[JobClaim]:
    made = []
    for pid, (group, uid, alive) in enumerate(each, start=1):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::{group}\n")
        made.append(JobClaim(f"{tmp_path}/{pid}/cgroup", "17", uid, pid, alive))
    return made


@pytest.mark.parametrize(
    ("group", "placed"),
    [
        ("/system.slice/slurmstepd.scope/job_17/step_0/user/task_0", True),
        ("/system.slice/n-1_slurmstepd.scope/job_17/step_0", True),
        ("/slurm/uid_1002/job_17/step_batch", True),
        ("/slurm_n1/uid_1002/job_17", True),
        ("/system.slice/slurmstepd.scope/job_171/step_0", False),
        ("/user.slice/user-1002.slice/user@1002.service/slurm/job_17", False),
        ("/user.slice/slurmstepd.scope/job_17", False),
    ],
)
def test_whom_the_scheduler_placed_has_the_job(tmp_path: Path, group: str, *, placed: bool) -> None:
    both = claims(tmp_path, ("/user.slice", ALICE, True), (group, BOB, True))

    found = find_job_claimants(both, str(tmp_path))["17"]

    assert found == (JobClaimants((BOB,), (ALICE,)) if placed else JobClaimants((ALICE, BOB)))
    assert found.disputed


def test_one_user_has_his_job_and_a_dead_job_is_nobodys(tmp_path: Path) -> None:
    old, mine = claims(tmp_path, ("/", ALICE, False), ("/", BOB, True))
    assert find_job_claimants([old, mine]) == {"17": JobClaimants((BOB,))}, "yesterday's job of that name was Alice's"
    assert find_job_claimants([old]) == {}
