from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthctl.process_supervision.supervised_programs import ProgramError, SupervisedPrograms, wait_until_ready

# A daemon as Slurm's step daemon is one: it leaves its parent and its session, and then stops listening.
DETACHED = """
import os, signal, sys, time
if os.fork(): os._exit(0)
os.setsid()
if os.fork(): os._exit(0)
signal.signal(signal.SIGTERM, signal.SIG_IGN)
open(sys.argv[1], "w").write(str(os.getpid()))
time.sleep(600)
"""

OWNER = """
import sys
from pathlib import Path
from healthctl.process_supervision.supervised_programs import SupervisedPrograms
programs = SupervisedPrograms(Path(sys.argv[1]))
programs.start("daemon", [sys.executable, "-c", sys.argv[2], sys.argv[3]], env={})
print("up", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def programs(tmp_path: Path) -> Iterator[SupervisedPrograms]:
    with SupervisedPrograms(tmp_path / "log") as found:
        yield found


def gone(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] == "Z"
    except FileNotFoundError:
        return True


def read_pid(path: Path) -> int:
    wait_until_ready(lambda: path.exists() and bool(path.read_text()), 90, str(path))
    return int(path.read_text())


def test_a_killed_program_is_started_again(programs: SupervisedPrograms) -> None:
    first = programs.start("sleeper", ["/bin/sleep", "600"], env={}, restart=True)
    assert programs.kill("sleeper")
    wait_until_ready(lambda: programs.starts("sleeper") == 2 and programs.pid("sleeper") is not None, 90, "the restart")
    assert programs.pid("sleeper") != first
    assert gone(first)


def test_a_stopped_program_stays_stopped(programs: SupervisedPrograms) -> None:
    programs.start("sleeper", ["/bin/sleep", "600"], env={}, restart=True)
    programs.stop("sleeper")
    wait_until_ready(lambda: programs.pid("sleeper") is None, 90, "the end")
    assert not programs.kill("sleeper")
    with pytest.raises(ProgramError, match="sleeper ended: the log is empty"):
        programs.require_running("sleeper")


def test_a_program_that_is_not_there_is_named(programs: SupervisedPrograms) -> None:
    with pytest.raises(ProgramError, match="cannot start /no/such/program"):
        programs.start("ghost", ["/no/such/program"], env={})


def test_leaving_ends_detached_and_frozen_descendants(tmp_path: Path) -> None:
    with SupervisedPrograms(tmp_path / "log") as programs:
        programs.start("daemon", [sys.executable, "-c", DETACHED, str(tmp_path / "pid")], env={})
        daemon = read_pid(tmp_path / "pid")
        os.kill(daemon, signal.SIGSTOP)
    assert gone(daemon)


def test_nothing_outlives_an_owner_that_is_killed(tmp_path: Path) -> None:
    argv = [sys.executable, "-c", OWNER, str(tmp_path / "log"), DETACHED, str(tmp_path / "pid")]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        assert owner.stdout.readline() == b"up\n"
        daemon = read_pid(tmp_path / "pid")
        owner.kill()
    wait_until_ready(lambda: gone(daemon), 90, "the daemon to be ended")
