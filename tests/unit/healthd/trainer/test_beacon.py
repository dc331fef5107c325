from __future__ import annotations

import multiprocessing
import os
import stat
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon import (
    Acknowledgement,
    Beacon,
    BeaconError,
    MailboxOrder,
    Phase,
    RankGpu,
    RankGroups,
    RankPlacement,
    page_name,
    read_all_pages,
    read_page,
)
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.beacon_page import OrderOutcome
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.page_reader import process_start
from healthd.trainer.beacons.step_ring import StepRecord
from vocabulary.clock import ManualClock

pytestmark = pytest.mark.usefixtures("step_writer")

PLACE = RankPlacement("job-7", 1, 3, 8, local_rank=3, node="n1")
ORDER = MailboxOrder("o1", "checkpoint_then_eject", "row remap pending", ("n1",), 2e9)
NOBODY = 65534


@pytest.fixture
def directory(tmp_path: Path) -> str:
    place = tmp_path / "beacons"
    prepare_directory(str(place))
    return str(place)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def beacon(directory: str, clock: ManualClock) -> Iterator[Beacon]:
    made = Beacon.create(directory, PLACE, clock)
    yield made
    made.close()


def in_child(code: str, *, check: bool = True, **kwargs: Any) -> subprocess.CompletedProcess[str]:
    """Run code in another process: one that dies, is another user, or has no disk space."""
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, check=False, **kwargs)
    assert not check or done.returncode == 0, done.stderr
    return done


def test_a_reader_sees_who_where_and_what(beacon: Beacon, clock: ManualClock) -> None:
    beacon.begin_step(41)
    clock.advance(0.5)
    beacon.end_step()
    beacon.begin_step(42)

    view = read_page(beacon.path)

    assert view.identity[:6] == ("job-7", 1, 3, 8, 3, "n1")
    assert (view.identity.pid, view.identity.process_start) == (os.getpid(), process_start(os.getpid()))
    assert (view.state.step, view.state.phase, view.state.completed) == (42, Phase.STEP, 1)
    assert view.state.since == clock.wall()
    assert view.steps() == [StepRecord(41, clock.wall() - 0.5, 0.5)]
    assert view.alive
    assert view.acknowledgement is view.order is None


def test_the_ring_holds_the_last_1024_steps(beacon: Beacon) -> None:
    for step in range(3000):
        beacon.begin_step(step)
        beacon.end_step()

    view = read_page(beacon.path)

    assert [record.step for record in view.steps()] == list(range(3000 - 1024, 3000))
    assert [record.step for record in view.steps(2)] == [2998, 2999]


def test_an_order_arrives_once_and_again_only_when_it_changes(beacon: Beacon) -> None:
    assert beacon.poll() is None

    post_order(beacon.path, ORDER)
    post_order(beacon.path, ORDER)

    assert [beacon.poll(), beacon.poll()] == [ORDER, None]
    post_order(beacon.path, ORDER._replace(cancelled=True))
    assert beacon.poll() == ORDER._replace(cancelled=True)


def test_a_second_reader_of_the_mailbox_sees_every_order_too(beacon: Beacon) -> None:
    watcher = beacon.mailbox()
    post_order(beacon.path, ORDER)

    assert beacon.poll() == watcher.poll() == ORDER


def test_an_order_that_does_not_fit_is_refused_and_the_mailbox_stays(beacon: Beacon) -> None:
    post_order(beacon.path, ORDER)

    with pytest.raises(BeaconError, match=r"mailbox: \d+ bytes of JSON, 16368 fit"):
        post_order(beacon.path, ORDER._replace(condemned=("n" * 250,) * 100))

    assert read_page(beacon.path).order == ORDER


def test_a_damaged_mailbox_is_not_acted_upon_and_warned_of_once(
    beacon: Beacon, caplog: pytest.LogCaptureFixture
) -> None:
    with Path(beacon.path).open("r+b") as file:
        file.seek(beacon_page.MAILBOX_AT)
        file.write(b"\x07garbage that is no frame")

    assert [beacon.poll(), beacon.poll()] == [None, None]
    assert len(caplog.records) == 1
    assert "mailbox: checksum" in caplog.text

    post_order(beacon.path, ORDER)
    assert beacon.poll() == ORDER


def test_an_acknowledgement_reaches_the_reader(beacon: Beacon) -> None:
    answer = Acknowledgement("o1", OrderOutcome.SAVED, 10.0, 42, 11.0, 12.0, "/ckpt/42", detail="x" * 9000)

    beacon.acknowledge(answer)

    assert read_page(beacon.path).acknowledgement == answer._replace(detail="x" * 1000)


def test_the_page_of_a_dead_process_is_readable_and_replaced_on_restart(directory: str) -> None:
    in_child(f"""
        from healthd.trainer.beacons.beacon import Beacon, RankPlacement
        beacon = Beacon.create({directory!r}, RankPlacement("job-7", 1, 3, 8, 3, "n1"))
        beacon.begin_step(5); beacon.end_step(); beacon.begin_step(6)
        import os, signal; os.kill(os.getpid(), signal.SIGKILL)
    """, check=False)  # fmt: skip
    [view], errors = read_all_pages(directory)

    assert (view.alive, view.state.step, view.steps()[-1].step, errors) == (False, 6, 5, [])

    again = Beacon.create(directory, PLACE)
    assert [view.alive for view in read_all_pages(directory)[0]] == [True]
    again.close()


def test_a_page_whose_process_lives_is_not_taken_over(directory: str) -> None:
    child = subprocess.Popen(
        [sys.executable, "-c", f"""if True:
        from healthd.trainer.beacons.beacon import Beacon, RankPlacement
        beacon = Beacon.create({directory!r}, RankPlacement("job-7", 1, 3, 8, 3, "n1"))
        print("ready", flush=True); input()"""],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )  # fmt: skip
    assert child.stdout is not None
    assert child.stdout.readline() == b"ready\n"
    try:
        with pytest.raises(
            BeaconError, match=rf"pid {child.pid} is alive and has this page; give each job its own HEALTHD_JOB"
        ):
            Beacon.create(directory, PLACE)
    finally:
        child.communicate(b"\n")


def test_who_the_peers_are_and_which_gpu_is_in_the_page(directory: str) -> None:
    place = PLACE._replace(groups=RankGroups("actor", 1, 2, 3, 4), gpu=RankGpu(number=6))
    beacon = Beacon.create(directory, place)
    assert read_page(beacon.path).identity[9:] == ("actor", 1, 2, 3, 4, "", "", 6)

    beacon.identify(RankGpu("GPU-6", "0000:3b:00.0", 6))

    assert read_page(beacon.path).identity[9:] == ("actor", 1, 2, 3, 4, "GPU-6", "0000:3b:00.0", 6)
    beacon.close()


def test_an_answer_that_does_not_fit_stops_nothing(beacon: Beacon, caplog: pytest.LogCaptureFixture) -> None:
    beacon.acknowledge(Acknowledgement("o1", OrderOutcome.SAVED, 1.0, checkpoint="/ckpt/\udcff"))
    beacon.acknowledge(Acknowledgement("o" * 9000, OrderOutcome.SEEN, 1.0))

    answer = read_page(beacon.path).acknowledgement
    assert answer is not None
    assert (answer.order, answer.checkpoint) == ("o1", "/ckpt/?")
    assert "not answered, training continues" in caplog.text


def test_two_jobs_do_not_mix(directory: str) -> None:
    one, other = Beacon.create(directory, PLACE), Beacon.create(directory, PLACE._replace(job="job-8"))

    post_order(one.path, ORDER)

    assert other.poll() is None
    assert one.poll() == ORDER
    one.close()
    other.close()


def test_pages_are_the_owners_alone(beacon: Beacon, directory: str) -> None:
    assert stat.S_IMODE(Path(beacon.path).stat().st_mode) == 0o600
    assert stat.S_IMODE(Path(directory).stat().st_mode) == 0o1777


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root to be two users")
def test_a_page_that_claims_another_users_process_is_refused(beacon: Beacon) -> None:
    child = subprocess.Popen(["sleep", "60"], user=NOBODY)
    try:
        started = process_start(child.pid)
        assert started is not None
        identity = beacon_page.Identity("job-7", 1, 3, 8, 3, "n1", child.pid, started, 1.0)
        frame = beacon_page.pack_frame("identity", 2, identity._asdict(), beacon_page.IDENTITY_BYTES)
        with Path(beacon.path).open("r+b") as file:
            file.seek(beacon_page.IDENTITY_AT)
            file.write(frame)
        for attempt in (lambda: read_page(beacon.path), lambda: post_order(beacon.path, ORDER)):
            with pytest.raises(BeaconError, match=f"owner: the file is user 0's, but pid {child.pid} runs as {NOBODY}"):
                attempt()
    finally:
        child.kill()
        child.wait()


def _write_for_ever(directory: str, ready: Any) -> None:
    beacon = Beacon.create(directory, PLACE)
    ready.set()
    step = 0
    while True:
        beacon.begin_step(step)
        beacon.end_step()
        beacon.acknowledge(Acknowledgement("o" * (1 + step % 500), OrderOutcome.SEEN, float(step)))
        step += 1


def test_a_reader_never_takes_a_torn_page_for_data(directory: str) -> None:
    context = multiprocessing.get_context("fork")
    ready = context.Event()
    writer = context.Process(target=_write_for_ever, args=(directory, ready))
    writer.start()
    try:
        assert ready.wait(30)
        path = f"{directory}/{page_name(PLACE.job, PLACE.attempt, PLACE.rank)}"
        for _ in range(300):
            view = read_page(path)
            steps = [record.step for record in view.steps()]
            assert steps == sorted(set(steps))
            assert view.state.completed - view.state.step in (0, 1)
            answer = view.acknowledgement
            assert answer is None or len(answer.order) == 1 + int(answer.seen_at) % 500
    finally:
        writer.kill()
        writer.join()
