"""Runs a plan: one process for each part, a watchdog over each test. A hang or a crash is a result like any other."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from itertools import groupby

import msgspec

from preflight.plan import START_WATCHDOG_S, Plan, Spec
from preflight.results import STARTING, Done, Message, Outcome, Result
from vocabulary.clock import Clock

EXIT_DEADLINE_S = 2.0  # from the end of its output to the end of a process
REAP_DEADLINE_S = 5.0  # a process stuck in the driver may outlive SIGKILL; it must not take us along
NOISE_BYTES_MAX = 4096
LINE_BYTES_MAX = 1 << 20
MACHINE_SIGNALS = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE)

Progress = Callable[[str], None]
_MESSAGE: msgspec.json.Decoder[Message] = msgspec.json.Decoder(Message)


def run(plan: Plan, clock: Clock, progress: Progress) -> tuple[Result, ...]:
    """Run all of `plan` and return one or more results for each of its tests, in order.

    `progress` gets a line whenever something begins or ends.
    """
    results: list[Result] = []
    for _, part in groupby(plan.specs, key=lambda spec: spec.part):
        results += _run_part(tuple(part), plan.faults, clock, progress)
    return tuple(results)


def _run_part(specs: Sequence[Spec], faults: Mapping[str, str], clock: Clock, progress: Progress) -> list[Result]:
    words = [f"{spec.test}:{faults.get(spec.test, '')}" for spec in specs]
    results: list[Result] = []
    with _Child(words, clock) as child:
        for number, spec in enumerate(specs):
            allowance = spec.watchdog_s + (START_WATCHDOG_S if number == 0 else 0.0)
            found, whole = _follow(child, spec, allowance, progress)
            results += found
            for result in found:
                progress(f"{result.test:<16} {result.outcome.value:<15} {result.device:<8} {result.reason}".rstrip())
            if not whole:
                results += [_not_run(later, spec) for later in specs[number + 1 :]]
                break
    return results


def _not_run(spec: Spec, after: Spec) -> Result:
    reason = f"{after.test} took its process down; run it again with --only {spec.test}"
    return Result(test=spec.test, outcome=Outcome.NOT_RUN, reason=reason)


def _follow(child: _Child, spec: Spec, allowance_s: float, progress: Progress) -> tuple[list[Result], bool]:
    """The results of one test, and whether its process lives on to run the next."""
    began = child.clock.monotonic()
    deadline, doing = began + allowance_s, STARTING
    results: list[Result] = []
    try:
        while (message := child.next_message(deadline)) is not None:
            if isinstance(message, Done):
                results.append(message.result)
                if message.last:
                    return results, True
                continue
            if doing == STARTING != message.doing:  # imports are over, the test begins
                deadline = child.clock.monotonic() + spec.watchdog_s
            doing = message.doing
            progress(f"{spec.test:<16} {doing}")
    except TimeoutError:
        seconds = round(child.clock.monotonic() - began, 1)
        reason = f"no end within {spec.watchdog_s:g} s; last seen at: {doing}"
        return [*results, Result(test=spec.test, outcome=Outcome.HANG, reason=reason, seconds=seconds)], False
    return [*results, _crash(spec, doing, child)], False


def _crash(spec: Spec, doing: str, child: _Child) -> Result:
    code = child.end()
    how = f"ended with {code}" if code >= 0 else f"was killed by {signal.Signals(-code).name}"
    reason = f"its process {how} at: {doing}; {child.noise() or 'it left no message'}"
    outcome = Outcome.FAIL if -code in MACHINE_SIGNALS else Outcome.ERROR
    return Result(test=spec.test, outcome=outcome, reason=reason)


class _Child:
    """The test process. Leaving the context ends it and everything it started."""

    def __init__(self, words: Sequence[str], clock: Clock) -> None:
        threads = str(len(os.sched_getaffinity(0)))
        self.clock = clock
        self._noise = b""
        self._process = subprocess.Popen(
            [sys.executable, "-m", "preflight.child", *words],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=os.environ | {"OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads},
            start_new_session=True,
        )
        assert self._process.stdout is not None  # noqa: S101 - we asked for pipes
        assert self._process.stderr is not None  # noqa: S101 - likewise
        self._out, self._err = self._process.stdout.fileno(), self._process.stderr.fileno()
        self._open = {self._out, self._err}
        self._line = b""

    def __enter__(self) -> _Child:  # noqa: PYI034 - Self is not in Python 3.10
        return self

    def __exit__(self, *_: object) -> None:
        self.end()
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()

    def next_message(self, deadline: float) -> Message | None:
        """The next thing the process sends; None once it has ended.

        Raises:
            TimeoutError: it is `deadline` (monotonic), and there is nothing to read.
        """
        while True:
            line, newline, rest = self._line.partition(b"\n")
            if newline:
                self._line = rest
                try:
                    return _MESSAGE.decode(line)
                except msgspec.DecodeError:
                    self._keep(line + b"\n")
                    continue
            left_s = deadline - self.clock.monotonic()
            if left_s <= 0:
                raise TimeoutError
            if not self._read(left_s):
                return None

    def _read(self, wait_s: float) -> bool:
        """Take in what there is. False when no message can come any more."""
        if self._out not in self._open or len(self._line) > LINE_BYTES_MAX:
            return False
        for descriptor in select.select(self._open, [], [], wait_s)[0]:
            chunk = os.read(descriptor, 65536)
            if not chunk:
                self._open.discard(descriptor)
            elif descriptor == self._out:
                self._line += chunk
            else:
                self._keep(chunk)
        return True

    def _keep(self, noise: bytes) -> None:
        self._noise = (self._noise + noise)[-NOISE_BYTES_MAX:]

    def noise(self) -> str:
        """The last line it left on standard error."""
        lines = self._noise.decode(errors="backslashreplace").split("\n")
        return next((line.strip() for line in reversed(lines) if line.strip()), "")

    def end(self) -> int:
        """Kill what still runs; the exit code, or minus the signal it died of. Gives up on what cannot die."""
        ended_itself = self._out not in self._open
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(EXIT_DEADLINE_S if ended_itself else 0.0)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(REAP_DEADLINE_S)
        return -signal.SIGKILL if self._process.returncode is None else self._process.returncode
