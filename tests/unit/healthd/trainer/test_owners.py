"""Several users claim one job: one of them has it, and the others neither get its orders nor spoil them."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.checks.beacons import BeaconCheck
from healthd.collectors.beacons import BeaconCollector
from healthd.facts import Clear, Raise
from healthd.orders.task import says
from healthd.orders.trainer import TrainerTask
from healthd.trainer import page
from healthd.trainer.beacon import Beacon, Place, open_beacon, read
from healthd.trainer.owners import Claim, Owner, born, owners_of
from healthd.trainer.page import Acknowledgement, MailboxOrder, Outcome
from healthd.trainer.pages import prepare_directory
from vocabulary.finding import Severity
from vocabulary.order import Order, OrderKind, OrderState

ALICE, BOB = 1001, 1002
NOW = 1_700_000_000.0
PLACE = Place("job-7", 1, 0, 2, 0, "n1")
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")


class Users:
    """Processes of several users, each with a page."""

    def __init__(self, directory: str) -> None:
        self.directory = directory
        self._children: list[int] = []

    def claim(self, uid: int, place: Place = PLACE, *, answers: str = "") -> str:
        """Another user's process publishes a page and lives on; `answers` forges that it was ordered and has failed."""
        source, sink = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                os.setgroups([])
                os.setgid(uid)
                os.setuid(uid)
                beacon = open_beacon(self.directory, place)
                assert isinstance(beacon, Beacon)
                if answers:
                    beacon.acknowledge(Acknowledgement(answers, Outcome.FAILED, NOW, detail="forged"))
                    forged = MailboxOrder(answers, "abort", "forged", (), NOW + 60)._asdict()
                    frame = page.pack_frame("mailbox", 1, forged, page.MAILBOX_BYTES)
                    with Path(beacon.path).open("r+b") as file:
                        file.seek(page.MAILBOX_AT)
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
        pid = read(path).identity.pid
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
    return TrainerTask(each, says(each, OrderState.RECEIVED, NOW, ""), users.directory)


@NEEDS_ROOT
@pytest.mark.parametrize("attempt", [1, None])
def test_an_order_goes_to_the_owner_and_is_judged_by_him(users: Users, attempt: int | None) -> None:
    mine = users.claim(ALICE)
    forged = [users.claim(BOB, PLACE._replace(rank=1)), users.claim(BOB, PLACE._replace(attempt=999), answers="o1")]
    ordered = task(users, order(attempt))

    update = ordered.step(NOW)

    assert update is not None
    assert (update.state, update.data["ranks"], update.data["owner"]) == (OrderState.RUNNING, 1, ALICE)
    assert read(mine).order is not None
    assert read(forged[0]).order is None, "told to nobody else"

    users.end(mine)
    again = TrainerTask(order(attempt), update, users.directory)  # by a daemon that was started anew
    again.step(NOW)
    end = again.step(NOW)
    assert end is not None
    assert (end.state, end.detail) == (OrderState.FAILED, "rank 0 ended without an answer"), "Bob lives on"


@NEEDS_ROOT
def test_who_claims_a_job_is_reported_and_not_shown_as_its_rank(users: Users) -> None:
    users.claim(ALICE)
    collector, check = BeaconCollector(Path(users.directory)), BeaconCheck()
    assert check.judge(collector.read(NOW)) == []
    forged = users.claim(BOB, PLACE._replace(attempt=999, rank=1))

    sample = collector.read(NOW)

    assert [(rank.attempt, rank.rank) for rank in sample.ranks] == [(1, 0)]
    assert [(rank.attempt, rank.rank) for rank in sample.steps] == [(1, 0)]
    (fact,) = check.judge(sample)
    assert isinstance(fact, Raise)
    assert (fact.check, fact.code, fact.component.name, fact.severity) == (
        "beacon",
        "owners",
        "job-7",
        Severity.WARNING,
    )
    assert f"user {BOB} claims the job too; it is held to be user {ALICE}'s" in fact.summary

    users.end(forged)
    (over,) = check.judge(collector.read(NOW))
    assert isinstance(over, Clear)


@NEEDS_ROOT
def test_a_taken_name_keeps_no_rank_from_its_page(users: Users) -> None:
    squatted = users.claim(BOB)
    mine = users.claim(ALICE)

    assert mine != squatted
    assert (read(squatted).uid, read(mine).uid) == (BOB, ALICE)


@NEEDS_ROOT
def test_a_page_rewritten_by_an_order_is_no_younger(users: Users) -> None:
    mine = users.claim(ALICE)
    users.claim(BOB, PLACE._replace(rank=1))
    before = born(mine)
    task(users, order()).step(NOW)
    assert born(mine) == before
    assert read(mine).order is not None
    users.end(mine)
    second = users.claim(ALICE, PLACE._replace(attempt=2))
    task(users, order(2)).step(NOW)
    assert read(second).order is not None, "Alice had the job before Bob: her dead page shows it"


def claims(tmp_path: Path, *each: tuple[str, int, bool]) -> list[Claim]:
    made = []
    for pid, (group, uid, alive) in enumerate(each, start=1):
        (tmp_path / str(pid)).mkdir()
        (tmp_path / str(pid) / "cgroup").write_text(f"0::{group}\n")
        made.append(Claim(f"{tmp_path}/{pid}/cgroup", "17", uid, pid, alive))
    return made


@pytest.mark.parametrize(
    ("group", "owner"),
    [
        ("/system.slice/slurmstepd.scope/job_17/step_0/user/task_0", BOB),
        ("/system.slice/n-1_slurmstepd.scope/job_17/step_0", BOB),
        ("/slurm/uid_1002/job_17/step_batch", BOB),
        ("/slurm_n1/uid_1002/job_17", BOB),
        ("/system.slice/slurmstepd.scope/job_171/step_0", ALICE),
        ("/user.slice/user-1002.slice/user@1002.service/slurm/job_17", ALICE),
        ("/user.slice/slurmstepd.scope/job_17", ALICE),
    ],
)
def test_whom_the_scheduler_placed_has_the_job_though_another_came_first(
    tmp_path: Path, group: str, owner: int
) -> None:
    both = claims(tmp_path, ("/user.slice", ALICE, True), (group, BOB, True))

    found = owners_of(both, str(tmp_path))["17"]

    assert (found.uid, found.others) == (owner, (ALICE + BOB - owner,))


def test_one_user_has_his_job_and_a_dead_job_is_nobodys(tmp_path: Path) -> None:
    old, mine = claims(tmp_path, ("/", ALICE, False), ("/", BOB, True))
    assert owners_of([old, mine]) == {"17": Owner(BOB)}, "yesterday's job of that name was Alice's"
    assert owners_of([old]) == {}
    assert born(f"{tmp_path}/none") == float("inf")
