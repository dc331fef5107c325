"""Watches the GPUs for processes of others. A process of its own, because a call into a faulty driver may never return.

Prints IDLE once no other process uses a GPU, and a line about the first one that does, and ends.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from preflight.execution.gpu_inventory import describe_process
from preflight.host.nvml_library import NoDriverError, load_nvml

IDLE = "idle"
LOOK_S = 0.2


def is_descendant(pid: int, ancestor: int, proc: Path = Path("/proc")) -> bool:
    """Whether a process is `ancestor`, or was started by it or its children. One that has ended is nobody's."""
    while pid not in (ancestor, 0, 1):
        try:
            status = (proc / str(pid) / "stat").read_text()
        except OSError:
            return False
        pid = int(status.rpartition(")")[2].split()[1])
    return pid == ancestor


def find_foreign_process(library: Any, ancestor: int) -> str:
    """A process on a GPU that is no descendant of `ancestor`; empty if there is none, or the driver lists none."""
    for index in range(library.nvmlDeviceGetCount()):
        for pid in _list_process_ids(library, index):
            if not is_descendant(pid, ancestor):
                process = describe_process(pid)
                what = f" ({process.command} of {process.user})" if process.user else ""
                return f"process {pid}{what} uses GPU {index}"
    return ""


def _list_process_ids(library: Any, index: int) -> Iterator[int]:
    try:
        handle = library.nvmlDeviceGetHandleByIndex(index)
        yield from (each.pid for each in library.nvmlDeviceGetComputeRunningProcesses(handle))
    except library.NVMLError:
        return  # preflight itself judges such a GPU


def main(tester: int) -> None:
    """Watch until another process uses a GPU, or `tester`, the process whose descendants may, is gone."""
    try:
        library = load_nvml(lambda _: None)
    except NoDriverError:
        print(IDLE, flush=True)  # noqa: T201 - to the process that started this one
        return
    said = False
    while os.getppid() == tester:
        if found := find_foreign_process(library, tester):
            print(found, flush=True)  # noqa: T201 - as above
            return
        if not said:
            print(IDLE, flush=True)  # noqa: T201 - as above
            said = True
        time.sleep(LOOK_S)


if __name__ == "__main__":
    main(int(sys.argv[1]))
