"""A notice of an end while the ranks act on an order: neither may undo the other. In processes of their own, with real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.page_reader import read_all_pages

DEADLINE_S = 60.0
KINDS = {"checkpoint_then_eject": 91, "checkpoint_then_stop": 93, "revert": 91}
SETUP = """
    import os, signal, sys, time
    from healthd.trainer import guard as module
    from healthd.trainer.agreement import LocalStore
    from healthd.trainer.beacons.beacon import Beacon, MailboxOrder
    from healthd.trainer.beacons.mailbox import post_order
    from healthd.trainer.framework import NoFramework
    from healthd.trainer.guard import Guard
    from healthd.trainer.beacons.rank_placement import RankPlacement
    from vocabulary.clock import ManualClock
    DIRECTORY, KIND = os.environ["HEALTHD_BEACON_DIR"], os.environ.get("KIND", "checkpoint_then_eject")
    ORDER = MailboxOrder("o1", KIND, "row remap pending", (), 2e9, before_step=2)

    def term():
        os.kill(os.getpid(), signal.SIGTERM)
"""


def end(directory: Path, code: str, **environ: str) -> tuple[int, str, str]:
    prepare_directory(str(directory))
    argv = [sys.executable, "-c", textwrap.dedent(SETUP) + textwrap.dedent(code)]
    environ |= {"HEALTHD_BEACON_DIR": str(directory)}
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=DEADLINE_S, check=False)
    return done.returncode, done.stdout, done.stderr


SLOW = """
    def save():
        print("saving", flush=True)
        term()
        while guard._termination.overdue() is None:
            time.sleep(0.01)
        time.sleep(0.5)  # more looks of the watcher than it needs
        print("saved", flush=True)

    with Guard.from_env() as guard:
        guard.on_revert(lambda step: save())
        for step in range(10**6):
            if step == 3:
                post_order(guard._beacon.path, ORDER)
            with guard.step(step) as s:
                if s.checkpoint_due:
                    save()
                    s.saved("/ckpt")
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_notice_that_runs_out_does_not_end_what_all_ranks_are_doing(tmp_path: Path, kind: str) -> None:
    code, out, err = end(tmp_path / "pages", SLOW, KIND=kind, HEALTHD_TERMINATION_SECONDS="0.1")

    assert (code, out) == (KINDS[kind], "saving\nsaved\n"), err
    [view] = read_all_pages(str(tmp_path / "pages"))[0]
    assert view.acknowledgement is not None
    assert (view.acknowledgement.order, view.acknowledgement.outcome.value) == ("o1", "left")


HANGS = """
    import ctypes, threading

    def stuck():  # no byte of Python runs in this thread any more
        lock = ctypes.CDLL(None).pthread_mutex_lock
        mutex = ctypes.create_string_buffer(64)
        lock(mutex)
        lock(mutex)

    def again():
        while True:
            time.sleep(0.2)
            term()

    def save():
        term()
        if "TWICE" in os.environ:
            threading.Thread(target=again, daemon=True).start()
        stuck()
"""


@pytest.mark.parametrize(
    "environ",
    [{"HEALTHD_KILL_SECONDS": "5.3"}, {"TWICE": "1"}],
    ids=["its kill time is near", "the signal comes again"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_a_save_that_hangs_for_good_does_not_keep_a_rank_that_is_to_end(
    tmp_path: Path, kind: str, environ: dict[str, str]
) -> None:
    loop = SLOW[SLOW.index("    with Guard") :].replace(
        "step: save()", "step: save()); guard.on_abort(lambda _: print('snapshot', flush=True)"
    )
    environ = environ | {"KIND": kind, "HEALTHD_TERMINATION_SECONDS": "0.1"}

    code, out, err = end(tmp_path / "pages", HANGS + loop, **environ)

    assert (code, out) == (92, "snapshot\n"), err


TWO = """
    clock = ManualClock()
    places = [RankPlacement("j", 1, rank, 2) for rank in range(2)]
    beacons = [Beacon.create(DIRECTORY, place, clock) for place in places]
    store, seconds = LocalStore(), (1.0, 0.0)
    guards = [
        Guard(place, beacon, store, framework=NoFramework(), clock=clock, termination_seconds=each)
        for place, beacon, each in zip(places, beacons, seconds)
    ]
    for guard in guards:
        guard.on_revert(lambda step: print("back", step, flush=True))
    for step in range(12):
        if step == 3:
            term()  # rank 0 alone hears it, and votes
        for beacon, ordered_at in zip(beacons, ORDERED_AT):
            if step == ordered_at:
                post_order(beacon.path, ORDER)
        if step == 5:
            clock.advance(1.5)  # a long step: rank 0's notice has run out
        left = 0
        for rank, guard in enumerate(guards):
            try:
                with guard.step(step) as s:
                    if s.checkpoint_due:
                        print("saves", rank, step, flush=True)
                        s.saved("/ckpt")
            except SystemExit as leave:
                print("left", rank, step, leave.code, flush=True)
                left += 1
        if left:
            os._exit(0)
"""


@pytest.mark.parametrize("kind", KINDS)
def test_a_notice_that_runs_out_where_an_order_is_due_takes_part_in_it(tmp_path: Path, kind: str) -> None:
    code, out, err = end(tmp_path / "pages", TWO.replace("ORDERED_AT", "(4, 4)"), KIND=kind)

    did = ["back 2" if kind == "revert" else f"saves {rank} 5" for rank in range(2)]
    wanted = [line for rank in range(2) for line in (did[rank], f"left {rank} 5 {KINDS[kind]}")]
    assert (code, out.splitlines()) == (0, wanted), err


def test_a_notice_that_runs_out_where_an_order_is_agreed_waits_for_it(tmp_path: Path) -> None:
    code, out, err = end(tmp_path / "pages", TWO.replace("ORDERED_AT", "(5, 4)"))

    assert (code, out.splitlines()) == (0, ["saves 0 6", "left 0 6 91", "saves 1 6", "left 1 6 91"]), err


def test_a_notice_that_runs_out_with_nothing_agreed_ends_as_the_signal_would(tmp_path: Path) -> None:
    code, out, err = end(tmp_path / "pages", TWO.replace("ORDERED_AT", "()"))

    assert (code, out) == (-signal.SIGTERM, ""), err
