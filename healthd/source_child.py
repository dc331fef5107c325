"""The source child: reads every source but the kernel log, NVML and the beacons, so that only it can hang on them.

    python -m healthd.source_child CALL_PAGE_FD ROOT PLAN        PLAN: {"name": [every_s, {"option": ["word", …]}], …}

Writes one JSON line for each reading of each source. Before a reading it notes the source and the time on the call
page; when the reading never ends, the parent sees there which one hangs. Lines on standard input are ``hang NAME``, the
source to hang on, and ``gpu_pids PID …``, the processes that now hold a GPU, with + those whose GPU is busy; its end means that the parent has exited. Standard library only: all of it fits in a sixth of the node's memory
budget.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.supervision.child_call_page import ChildCallPage

STAGGER_S = 0.05  # between sources that are due together, to avoid load bursts on the trainer
MESSAGE_BYTES_MAX = 4096  # PIPE_BUF: a pipe delivers as much in one piece
_PR_SET_PDEATHSIG = 1

Read = Callable[[MachineAccess, Options], Any]


def main(arguments: list[str]) -> int:
    """Read sources until the parent exits."""
    parent = os.getppid()
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a blocked read would never see the end of its input
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent handles a terminal's Ctrl-C
    if os.getppid() != parent:
        return 0
    call_page, machine, plan = ChildCallPage(int(arguments[0])), MachineAccess(arguments[1]), json.loads(arguments[2])
    due = {name: time.monotonic() + number * STAGGER_S for number, name in enumerate(plan)}
    readers = {name: _load_collector(name) for name in plan}
    gc.freeze()
    while True:
        name = min(due, key=lambda each: due[each])
        wait_s = max(0.0, due[name] - time.monotonic())
        if select.select([0], [], [], wait_s)[0]:
            message = os.read(0, MESSAGE_BYTES_MAX).decode()
            if not message:
                return 0
            for line in message.splitlines():
                verb, *words = line.split()
                if verb == "hang":
                    _hang_forever(words[0], call_page)
                machine.gpu_pids = {int(word.rstrip("+")): word.endswith("+") for word in words}
            continue
        every_s, options = plan[name]
        call_page.write(None, f"{name} {time.monotonic():.3f}")
        _write_message(read_source(name, readers[name], machine, options))
        call_page.write(None, "")
        due[name] = max(due[name] + every_s, time.monotonic())


def read_source(name: str, read: Read, machine: MachineAccess, options: Options) -> dict[str, Any]:
    """Read one source once; errors become part of the result."""
    began = time.monotonic()
    answer: dict[str, Any] = {"source": name, "at": time.time()}
    try:
        answer |= {"sample": read(machine, options), "state": "present"}
    except SourceAbsent as absent:
        answer |= {"state": "absent", "reason": str(absent)}
    except Exception as error:  # noqa: BLE001 - a collector's mistake must not silence the others
        answer |= {"state": "failing", "reason": f"{type(error).__name__}: {error}"[:300]}
    return answer | {"seconds": time.monotonic() - began}


def _hang_forever(name: str, call_page: ChildCallPage) -> None:
    """Hang in a reading of this source, for a simulated fault."""
    call_page.write(None, f"{name} {time.monotonic():.3f}")
    while True:
        signal.pause()


def _load_collector(name: str) -> Read:
    """Load the source's collector; one that cannot be loaded fails at each reading and spares the others."""
    try:
        read: Read = getattr(importlib.import_module(f"healthd.collectors.{name}"), f"read_{name}")
    except Exception as error:  # noqa: BLE001 - same
        problem = f"its collector cannot be loaded: {type(error).__name__}: {error}"

        def refuse(machine: MachineAccess, options: Options) -> Any:  # noqa: ARG001 - a collector's signature
            raise RuntimeError(problem)

        return refuse
    return read


def _write_message(message: dict[str, Any]) -> None:
    line = memoryview(json.dumps(message, separators=(",", ":")).encode() + b"\n")
    while line:
        line = line[os.write(1, line) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
