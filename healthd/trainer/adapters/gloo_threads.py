"""Gloo's threads at the interpreter's end and in forked processes: what could end a rank or its workers by a signal.

A thread of gloo's lets go of a collective's tensors a moment after the collective has ended, and needs the interpreter for
it. Until Python 3.13 a thread that asks for the interpreter while it ends is unwound, through C++ that forbids it:
"terminate called without an active exception". `destroy_process_group` ends no such threads while DDP's reducer keeps
the group. See https://docs.python.org/3/c-api/init.html (cautions regarding runtime finalization).

A forked process, such as a DataLoader worker, has none of these threads. If its garbage collector finds a process group
that its parent left in a reference cycle, such as that of an earlier generation, the group's destructor waits for them:
the worker hangs or ends by SIGSEGV (seen with torch 2.13). So a forked process does not collect its parent's garbage.
"""

from __future__ import annotations

import atexit
import functools
import gc
import os
import time
from pathlib import Path

TASKS = Path("/proc/self/task")
NAME = "pt_gloo_runloop"
LOOK_SECONDS = 0.001
LOOKS = 3  # one thread that a look finds asleep may be waiting for the interpreter, and then has it before the next
MOST_SECONDS = 2.0


def contain_gloo_threads() -> None:
    """For users of a process group: this process' exit waits for gloo's threads, and forked processes leave old groups alone."""
    atexit.unregister(wait_for_gloo_threads)
    atexit.register(wait_for_gloo_threads)
    _keep_garbage_from_children()


@functools.cache  # what is registered cannot be taken back
def _keep_garbage_from_children() -> None:
    os.register_at_fork(after_in_child=gc.freeze)


def wait_for_gloo_threads() -> None:
    """Return when they all sleep, or after `MOST_SECONDS`; they get the interpreter meanwhile."""
    end = time.monotonic() + MOST_SECONDS
    asleep = 0
    while asleep < LOOKS and time.monotonic() < end:
        time.sleep(LOOK_SECONDS)
        asleep = asleep + 1 if _are_threads_asleep() else 0


def _are_threads_asleep() -> bool:
    return all(state == "S" for name, state in map(_parse_name_and_state, TASKS.glob("*/stat")) if name == NAME)


def _parse_name_and_state(stat: Path) -> tuple[str, str]:
    """Both, of a line as in proc(5): `PID (NAME) STATE ...`; empty for a thread that has ended."""
    try:
        text = stat.read_text()
    except OSError:
        return "", ""
    name, _, rest = text.partition("(")[2].rpartition(")")
    return name, rest.split()[0]
