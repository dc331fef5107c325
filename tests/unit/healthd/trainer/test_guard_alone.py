"""One guard to a process and a page: seconds, forked children, and who comes after."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from healthd.trainer.beacons.beacon import (
    Beacon,
    MailboxOrder,
    NullBeacon,
    Phase,
    RankPlacement,
    open_beacon,
    read_page,
)
from healthd.trainer.beacons.beacon_directory import prepare_directory
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.framework import NoFramework
from healthd.trainer.guard import Guard

pytestmark = pytest.mark.usefixtures("step_writer")

ORDER = MailboxOrder("o1", "checkpoint_then_eject", "row remap pending", (), 2e9)
PLACE = RankPlacement("j", 1, 0, 1)


@pytest.fixture
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr("healthd.trainer.process_exit.ExitGuard.leave_within", lambda *_: None)
    prepare_directory(str(tmp_path / "pages"))
    yield tmp_path / "pages"
    gc.collect()


def guard_of(directory: Path) -> Guard:
    return Guard(PLACE, open_beacon(str(directory), PLACE), None, framework=NoFramework(), termination_seconds=0.0)


def test_a_second_guard_of_the_process_leaves_the_first_its_page_and_its_orders(
    directory: Path, caplog: pytest.LogCaptureFixture
) -> None:
    path = str(directory / "j.1.0.beacon")
    saved = []

    def loop() -> None:
        with guard_of(directory) as outer:
            with outer.step(0):
                pass
            with guard_of(directory) as inner, inner.step(7):
                assert read_page(path).state.step == 0
            post_order(path, ORDER)
            for step in range(1, 9):
                with outer.step(step) as s:
                    if s.checkpoint_due:
                        s.saved("/ckpt")
                        saved.append(step)

    with pytest.raises(Leave) as left:
        loop()

    assert (saved, left.value.code) == ([2], ExitCode.RELAUNCH)
    assert [each.getMessage() for each in caplog.records if "another guard of this process" in each.getMessage()] != []


@pytest.mark.parametrize("code", ["pass", "raise RuntimeError", "sys.exit(0)", "sys.exit(93)"])
def test_a_guard_may_follow_one_that_has_ended(directory: Path, code: str) -> None:
    with suppress(RuntimeError, SystemExit), guard_of(directory) as first, first.step(0):
        exec(code, {"sys": sys})  # noqa: S102 - how a loop may end

    with guard_of(directory) as second, second.step(3):
        assert read_page(str(directory / "j.1.0.beacon")).state.step == 3


def test_a_page_that_was_let_go_is_free_again(directory: Path) -> None:
    closed = Beacon.create(str(directory), PLACE)
    assert isinstance(open_beacon(str(directory), PLACE), NullBeacon)
    closed.close()
    dropped = Beacon.create(str(directory), PLACE)
    del dropped
    gc.collect()

    assert isinstance(open_beacon(str(directory), PLACE), Beacon)


def test_a_forked_child_that_ends_inside_the_guard_says_nothing_for_its_parent(directory: Path) -> None:
    code = """
    import os, sys
    from healthd.trainer.guard import Guard
    from healthd.trainer.beacons.page_reader import read_all_pages
    with Guard.from_env() as guard:
        with guard.step(0):
            if os.fork() == 0:
                sys.exit(0)
            print(os.wait()[1], flush=True)
        with guard.step(1):
            if os.fork() == 0:
                raise ValueError("a worker of the loop's own")
            print(os.wait()[1] >> 8, flush=True)
            [view] = read_all_pages(os.environ["HEALTHD_BEACON_DIR"])[0]
            print(view.state.phase.name, view.alive, view.acknowledgement)
    """
    environ = {"HEALTHD_BEACON_DIR": str(directory)}
    argv = [sys.executable, "-c", textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=60, check=False)

    assert (done.returncode, done.stdout.split("\n")) == (0, ["0", "1", "STEP True None", ""]), done.stderr


def test_a_forked_child_does_not_take_its_parents_page(directory: Path) -> None:
    beacon = Beacon.create(str(directory), PLACE)
    child = os.fork()
    if child == 0:
        os._exit(0 if isinstance(open_beacon(str(directory), PLACE), NullBeacon) else 1)

    assert os.waitpid(child, 0)[1] == 0
    assert read_page(beacon.path).state.phase is Phase.STARTING
    beacon.close()
