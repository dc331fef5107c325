"""The process that runs tests: the only one that may hang or crash.

    python -m preflight.child TEST[:FAULT]...

Standard output carries one JSON message per line (`preflight.results.Message`); whatever a library prints there goes
to standard error instead. It dies with its parent.
"""

from __future__ import annotations

import ctypes
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable

import msgspec

from preflight.results import STARTING, Done, Message, Now, Outcome, Result

_PR_SET_PDEATHSIG = 1
Send = Callable[[Message], None]


def main(arguments: list[str]) -> int:
    """Run the tests in the order given."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a hung call would never see that nobody waits
    channel = os.dup(1)
    os.dup2(2, 1)

    def send(message: Message) -> None:
        line = msgspec.json.encode(message) + b"\n"
        while line:
            line = line[os.write(channel, line) :]

    for argument in arguments:
        test, _, fault = argument.partition(":")
        run_test(test, fault, send)
    return 0


def run_test(test: str, fault: str, send: Send) -> None:
    """Run one test and send each result as it comes, then the mark that there are no more."""
    began = time.perf_counter()
    pending: Result | None = None
    send(Now(test, STARTING))
    try:
        if fault == "hang":
            send(Now(test, "an injected hang"))
            signal.pause()
        check = importlib.import_module(f"preflight.checks.{test}")
        began = time.perf_counter()
        for result in check.run(fault, lambda text: send(Now(test, text))):
            if pending is not None:
                send(Done(pending, last=False))
            pending = msgspec.structs.replace(result, seconds=round(time.perf_counter() - began, 3))
            began = time.perf_counter()
    except Exception as error:  # noqa: BLE001 - whatever a broken machine throws is a result
        if pending is not None:
            send(Done(pending, last=False))
        pending = of_exception(test, error)
    send(Done(pending or Result(test=test, outcome=Outcome.ERROR, reason="the test had nothing to say"), last=True))


def of_exception(test: str, error: Exception) -> Result:
    """What an exception says of the machine: a device that throws is broken, one that is full is only busy."""
    words = " ".join(str(error).split())[:500] or type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        todo = "install it: pip install 'gpu-healthd[preflight]'"
        reason = f"the module {error.name} is not here; {todo}"
        return Result(test=test, outcome=Outcome.NOT_RUN, reason=reason, misconfigured=True)
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":
        return Result(test=test, outcome=Outcome.ERROR, reason=f"not enough free memory: {words}")
    if type(error).__name__ == "AcceleratorError" or "CUDA error" in words:
        return Result(test=test, outcome=Outcome.FAIL, reason=f"the device failed: {words}")
    return Result(test=test, outcome=Outcome.ERROR, reason=f"{type(error).__name__}: {words}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
