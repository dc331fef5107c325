"""A step makes no system call: shown by the kernel, which ends a process that makes one behind a seccomp filter."""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from healthd.trainer.agreement import LocalStore
from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.framework import NoFramework
from healthd.trainer.guard import Guard

pytestmark = pytest.mark.usefixtures("step_writer")

PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, FILTER = 22, 38, 2
LOAD_NUMBER, EQUAL, RETURN, KILL_PROCESS, ALLOW = 0x20, 0x15, 0x06, 0x80000000, 0x7FFF0000
WRITE_AND_EXIT = {"x86_64": (1, 231), "aarch64": (64, 94)}
STEPS = 3000


def forbid_system_calls() -> bool:
    """All but `write` and the end of this process; whether the kernel does that."""
    if platform.machine() not in WRITE_AND_EXIT:
        return False
    write, leave = WRITE_AND_EXIT[platform.machine()]
    lines = (
        (LOAD_NUMBER, 0, 0, 0),
        (EQUAL, 2, 0, write),
        (EQUAL, 1, 0, leave),
        (RETURN, 0, 0, KILL_PROCESS),
        (RETURN, 0, 0, ALLOW),
    )
    program = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *line) for line in lines))
    head = ctypes.create_string_buffer(struct.pack("@HP", len(lines), ctypes.addressof(program)))
    libc = ctypes.CDLL(None)
    return (
        libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
        and libc.prctl(PR_SET_SECCOMP, FILTER, ctypes.c_void_p(ctypes.addressof(head)), 0, 0) == 0
    )


def does_without_system_calls(deed: Callable[[], object]) -> bool | None:
    """None where the kernel cannot tell."""
    source, sink = os.pipe()
    child = os.fork()
    if child == 0:
        deed()  # once freely: memory, caches, lazy imports
        if forbid_system_calls():
            os.write(sink, b"forbidden ")
            deed()
            os.write(sink, b"done")
        os._exit(0)
    os.close(sink)
    os.waitpid(child, 0)
    with os.fdopen(source, "rb") as told:
        said = told.read()
    return said.endswith(b"done") if said else None


def test_steps_sections_and_reports_stay_in_this_process(tmp_path: Path) -> None:
    tmp_path.chmod(0o700)
    place = RankPlacement("j", 1, 0, 1, 0, "n1")
    beacon = Beacon.create(str(tmp_path), place)
    guard = Guard(place, beacon, LocalStore(), framework=NoFramework(), termination_seconds=0.0)

    def bare() -> None:
        for _ in range(STEPS):
            time.time()
            time.monotonic()

    def steps() -> None:
        for step in range(STEPS):
            with guard.step(step) as s:
                with s.section("forward"):
                    pass
                s.report(loss=1.0, grad_norm=2.0, tokens=3)
                _ = s.checkpoint_due or s.eject
            with guard.step(step):
                pass

    if not does_without_system_calls(bare):
        pytest.skip("no seccomp filters here, or clocks that need the kernel")
    assert does_without_system_calls(os.getppid) is False
    assert does_without_system_calls(steps)
    beacon.close()
