"""How a process ends, tried on processes that hang, crash in their destructors, fork, or get signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from healthd.trainer.pages import prepare_directory, read_all

DEADLINE_S = 30.0


def end(code: str, **environ: str) -> tuple[int, str, str]:
    """Run code in a process of its own; how it ended and what it said."""
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=DEADLINE_S, check=False)
    return done.returncode, done.stdout, done.stderr


GUARD = """
    import atexit, os, signal, sys, threading, time
    from healthd.trainer.agreement import LocalStore
    from healthd.trainer.guard import Guard
    from healthd.trainer import guard as module
    module.LEAVE_SECONDS, module.TEARDOWN_SECONDS = 1.0, 0.2
    print("started", flush=True)
"""
LEAVES = """
    with Guard.from_env() as guard:
        os.kill(os.getpid(), signal.SIGTERM)
        for step in range(99):
            with guard.step(step) as s:
                if s.checkpoint_due:
                    s.saved("/ckpt")
"""


def test_a_job_of_one_saves_on_sigterm_and_leaves_with_91_through_the_users_own_handlers() -> None:
    code, out, _ = end(GUARD + LEAVES.replace("as guard:", "as guard:\n        atexit.register(print, 'my handler')"))

    assert (code, out) == (91, "started\nmy handler\n")


@pytest.mark.parametrize(
    "hangs",
    [
        "    threading.Thread(target=time.sleep, args=(600,)).start()\n",
        "    import weakref; weakref.finalize(guard, time.sleep, 600)\n",
        "    atexit.register(time.sleep, 600)\n",
    ],
    ids=["a thread", "a finalizer", "an exit handler"],
)
def test_what_hangs_on_the_way_out_does_not_hold_the_process(hangs: str) -> None:
    setup = GUARD + "    guard = Guard.from_env()\n" + hangs
    assert end(setup + LEAVES.replace("Guard.from_env() as guard", "guard"))[0] == 91


def test_a_teardown_that_hangs_does_not_hold_the_process() -> None:
    hanging = """
    from healthd.trainer.framework import NoFramework
    NoFramework.teardown = lambda self: time.sleep(600)
    """
    code, _, err = end(GUARD + hanging + LEAVES)

    assert code == 91
    assert "teardown did not finish within 0.2 s" in err


def test_a_rank_whose_peers_got_no_sigterm_ends_as_the_signal_would(tmp_path: Path) -> None:
    code = (
        GUARD
        + """
    module.TERMINATION_SECONDS = 0.05
    place = module.read_environment({"WORLD_SIZE": "2"}).place
    with Guard(place, module.NullBeacon(), LocalStore(), termination_seconds=0.05) as guard:
        os.kill(os.getpid(), signal.SIGTERM)
        for step in range(10**9):
            with guard.step(step):
                time.sleep(0.01)
    """
    )
    assert end(code)[0] == -signal.SIGTERM


def test_a_second_sigterm_means_it() -> None:
    code = (
        GUARD
        + """
    place = module.read_environment({"WORLD_SIZE": "2"}).place
    guard = Guard(place, module.NullBeacon(), LocalStore(), termination_seconds=600)
    os.kill(os.getpid(), signal.SIGTERM)
    print("still here", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)
    time.sleep(600)
    """
    )
    assert end(code)[:2] == (-signal.SIGTERM, "started\nstill here\n")


def test_a_forked_worker_dies_of_sigterm_as_ever() -> None:
    code = (
        GUARD
        + """
    with Guard.from_env() as guard:
        ready, tell = os.pipe()
        child = os.fork()
        if child == 0:
            os.write(tell, b"x")
            time.sleep(600)
        os.read(ready, 1)
        os.kill(child, signal.SIGTERM)
        print(os.waitpid(child, 0)[1])
    """
    )
    assert end(code)[:2] == (0, f"started\n{int(signal.SIGTERM)}\n")


def test_a_handler_of_the_users_own_stays() -> None:
    code = (
        GUARD
        + """
    signal.signal(signal.SIGTERM, lambda *_: print("mine", flush=True))
    with Guard.from_env() as guard:
        os.kill(os.getpid(), signal.SIGTERM)
    """
    )
    assert end(code)[:2] == (0, "started\nmine\n")


ABORT = """
    from healthd.trainer.beacon import MailboxOrder, post_order
    module.SNAPSHOT_SECONDS = 0.2
    with Guard.from_env() as guard:
        guard.on_abort({snapshot})
        with guard.step(0):
            post_order(guard._beacon.path, MailboxOrder("a1", "abort", "GPU 3 is lost", ("n1",), time.time() + 60))
            time.sleep(600)
"""


@pytest.mark.parametrize(
    ("snapshot", "told"),
    [
        ("lambda seconds: '/ram/snapshot'", ""),
        ("lambda seconds: time.sleep(600)", "snapshot did not finish within 0.2 s"),
        ("lambda seconds: 1 / 0", "ZeroDivisionError"),
    ],
)
def test_an_abort_takes_a_stuck_rank_out_whatever_its_snapshot_does(tmp_path: Path, snapshot: str, told: str) -> None:
    prepare_directory(str(tmp_path))
    code, _, err = end(GUARD + ABORT.format(snapshot=snapshot), HEALTHD_BEACON_DIR=str(tmp_path))

    assert code == 92
    assert told in err
    [view] = read_all(str(tmp_path))[0]
    assert view.acknowledgement is not None
    assert view.acknowledgement.outcome.value == "aborted"
    assert view.acknowledgement.checkpoint == ("/ram/snapshot" if not told else "")
