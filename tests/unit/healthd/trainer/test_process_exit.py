"""How a process ends, tried on processes that hang, crash in their destructors, fork, or get signals."""

from __future__ import annotations

import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.page_reader import read_all_pages

DEADLINE_S = 90.0


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
    from healthd.trainer.beacons.beacon import MailboxOrder
    from healthd.trainer.beacons.mailbox import post_order
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
    [view] = read_all_pages(str(tmp_path))[0]
    assert view.acknowledgement is not None
    assert view.acknowledgement.outcome.value == "aborted"
    assert view.acknowledgement.checkpoint == ("/ram/snapshot" if not told else "")


STUCK = """
    import ctypes
    from healthd.trainer import rank_abort
    rank_abort.COMMUNICATOR_SECONDS = 0.2

    def stuck():  # as in a collective: no byte of Python runs in this thread any more
        lock = ctypes.CDLL(None).pthread_mutex_lock
        mutex = ctypes.create_string_buffer(64)
        lock(mutex)
        lock(mutex)

    def tell(number, times):
        for _ in range(times):
            time.sleep(0.1)
            os.kill(os.getpid(), number)

    with Guard.from_env() as guard:
        guard.on_abort(lambda seconds: print("snapshot", flush=True))
        with guard.step(0):
            threading.Thread(target=tell, args=({signals}), daemon=True).start()
            stuck()
"""


@pytest.mark.parametrize(
    ("signals", "environ"),
    [
        ("signal.SIGTERM, 1", {"HEALTHD_TERMINATION_SECONDS": "0.5"}),
        ("signal.SIGTERM, 9", {}),  # two that arrive as one are one
        ("signal.SIGTERM, 2", {"HEALTHD_TERMINATION_SECONDS": "0.5", "TORCHELASTIC_RUN_ID": "r"}),
        ("signal.SIGUSR2, 1", {"HEALTHD_TERMINATION_SECONDS": "0.5", "HEALTHD_TERMINATION_SIGNALS": "USR2"}),
    ],
    ids=["its time is up", "twice", "twice by torchrun", "another signal"],
)
@pytest.mark.parametrize("page", [True, False])
def test_a_signal_takes_a_rank_out_that_is_stuck_in_a_collective(
    tmp_path: Path, signals: str, environ: dict[str, str], *, page: bool
) -> None:
    prepare_directory(str(tmp_path / "there"))
    directory = str(tmp_path / ("there" if page else "absent"))

    code, out, err = end(GUARD + STUCK.format(signals=signals), HEALTHD_BEACON_DIR=directory, **environ)

    assert (code, out) == (92, "started\nsnapshot\n"), err


def test_a_rank_that_agreed_may_save_longer_than_the_signal_allowed() -> None:
    code = (
        GUARD
        + """
    with Guard.from_env() as guard:
        os.kill(os.getpid(), signal.SIGTERM)
        for step in range(99):
            with guard.step(step) as s:
                if s.checkpoint_due:
                    while guard._termination.overdue() is None:
                        time.sleep(0.01)
                    time.sleep(0.3)  # several looks of the watcher
                    s.saved("/ckpt")
    """
    )
    assert end(code, HEALTHD_TERMINATION_SECONDS="0.3")[0] == 91


def test_an_event_loop_keeps_its_signals_and_a_forked_worker_its_own() -> None:
    code = (
        GUARD
        + """
    from healthd.trainer.termination_notices import TerminationNotices
    from vocabulary.clock import SystemClock
    heard, mine = os.pipe()
    os.set_blocking(mine, False)
    signal.set_wakeup_fd(mine)
    second = TerminationNotices(SystemClock(), 5.0)
    second.restore()
    print(signal.set_wakeup_fd(-1) == mine)
    notices = TerminationNotices(SystemClock(), 0.0001)
    ready, tell = os.pipe()
    child = os.fork()
    if child == 0:
        os.write(tell, b"x")
        time.sleep(600)
    os.read(ready, 1)
    os.kill(child, signal.SIGTERM)
    os.waitpid(child, 0)
    notices.overdue()
    time.sleep(0.01)
    print(notices.overdue())
    os.kill(os.getpid(), signal.SIGTERM)
    notices.overdue()
    time.sleep(0.01)
    print(notices.overdue().id)
    notices.restore()
    print(signal.set_wakeup_fd(-1))
    """
    )
    assert end(code)[:2] == (0, "started\nTrue\nNone\nsigterm\n-1\n")


@pytest.mark.parametrize(("condemned", "written"), [("n1", True), ("n2", False)])
def test_an_aborted_rank_of_a_condemned_node_tells_nvidias_launcher(
    tmp_path: Path, condemned: str, *, written: bool
) -> None:
    prepare_directory(str(tmp_path / "pages"))
    (tmp_path / "segments").mkdir()
    code = (
        GUARD
        + """
    from healthd.trainer.beacons.beacon import MailboxOrder
    from healthd.trainer.beacons.mailbox import post_order
    from healthd.trainer.segment_health import condemned_segment
    with condemned_segment(), Guard.from_env() as guard:
        with guard.step(0):
            order = MailboxOrder("a1", "abort", "GPU 3 is lost", (os.environ["CONDEMNED"],), time.time() + 60)
            post_order(guard._beacon.path, order)
            time.sleep(600)
    """
    )
    environ = {
        "HEALTHD_BEACON_DIR": str(tmp_path / "pages"),
        "HEALTHD_SEGMENT_HEALTH_DIR": str(tmp_path / "segments"),
        "HEALTHD_NODE": "n1",
        "CONDEMNED": condemned,
        "SLURM_ARRAY_JOB_ID": "7",
        "SLURM_ARRAY_TASK_ID": "3",
    }

    assert end(code, **environ)[0] == 92

    assert [path.name for path in (tmp_path / "segments").iterdir()] == ["segment_health_check.7.3"] * written


FULL = """
    import fcntl, logging
    from healthd.trainer.beacons.beacon import MailboxOrder
    from healthd.trainer.beacons.mailbox import post_order
    from healthd.trainer import rank_abort
    rank_abort.SPARE_SECONDS, module.SNAPSHOT_SECONDS, rank_abort.FINAL_ACTIONS_SECONDS = {spare}, 0.5, 0.1
    kept, full = os.pipe()  # nobody reads it: a hung srun, a terminal that is gone
    fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, 4096)
    os.dup2(full, 1)
    os.dup2(full, 2)
    with Guard.from_env() as guard:
        with guard.step(0):
            order = MailboxOrder("a1", "abort", "GPU 3 is lost", ("n1",), time.time() + 60)
            threading.Timer(0.2, post_order, (guard._beacon.path, order)).start()
            {says}
"""


@pytest.mark.parametrize(
    "says",
    [
        "while True: logging.error('x' * 1000)",
        "while True: print('x' * 1000)",
        "while True: print('x' * 1000, file=sys.stderr)",
        "guard.on_abort(lambda _: logging.error('x' * 9000)); time.sleep(600)",
        "with guard._beacon._acknowledging: time.sleep(600)",
        "guard.on_abort(lambda _: time.sleep(600)); sys.stdout.write('x' * 5000); time.sleep(600)",
    ],
    ids=["a log line", "standard output", "standard error", "the snapshot's log line", "the page's lock", "the flush"],
)
def test_an_abort_takes_a_rank_out_that_is_stuck_in_what_it_says(tmp_path: Path, says: str) -> None:
    prepare_directory(str(tmp_path))

    spare = 0.5 if "_acknowledging" in says else 20.0  # the one that only the last alarm ends

    code, _, _ = end(GUARD + FULL.format(says=says, spare=spare), HEALTHD_BEACON_DIR=str(tmp_path))

    assert code == 92
    [view] = read_all_pages(str(tmp_path))[0]
    assert view.state.phase.name == "ABORTING"
    if "_acknowledging" not in says:
        assert view.acknowledgement is not None
        assert (view.acknowledgement.outcome.value, view.acknowledgement.exit_code) == ("aborted", 92)


def test_output_that_nobody_reads_does_not_hold_a_rank_that_leaves() -> None:
    full = """
    import fcntl
    kept, full = os.pipe()
    fcntl.fcntl(full, fcntl.F_SETPIPE_SZ, 4096)
    os.write(full, b"x" * 4096)
    os.dup2(full, 1)
    os.dup2(full, 2)
    sys.stdout.write("a last word")
    from healthd.trainer.framework import NoFramework
    NoFramework.teardown = lambda self: time.sleep(600)
    """
    assert end(GUARD + full + LEAVES)[0] == 91
