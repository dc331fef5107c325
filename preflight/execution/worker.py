"""The process that runs tests; only it may hang or crash.

    python -m preflight.execution.worker PARENT

Standard input carries one request per line, standard output one answer (`preflight.worker_messages`); whatever a library prints
there goes to standard error instead. It dies with its parent, and ends when its input ends.
"""

from __future__ import annotations

import ctypes
import gc
import importlib
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator

import msgspec

from preflight.check_context import Context, Device
from preflight.execution.cuda_errors import INCONCLUSIVE, judge_exception
from preflight.execution.finite_numbers import replace_non_finite
from preflight.host.counter_reader import HardwareCounterReader
from preflight.host.counter_records import CounterReading
from preflight.results import Outcome, Result
from preflight.worker_messages import (
    JOINING,
    STARTING,
    Answer,
    AssignRequest,
    CounterRequest,
    DeviceReady,
    DeviceRefused,
    InventoryRequest,
    NvmlRequest,
    ProcessGroupSpec,
    ProgressUpdate,
    Request,
    ResultMessage,
    RunRequest,
)

_PR_SET_PDEATHSIG = 1
_REQUEST: msgspec.json.Decoder[Request] = msgspec.json.Decoder(Request)
_RESULT: msgspec.json.Decoder[Result] = msgspec.json.Decoder(Result)
Send = Callable[[Answer], None]


def main(parent: int) -> None:
    """Process requests until the input ends."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)  # a hung call would never see that the parent has died
    if os.getppid() != parent:
        return  # the parent died before prctl
    channel = os.dup(1)
    os.dup2(2, 1)

    def send(answer: Answer) -> None:
        line = msgspec.json.encode(answer) + b"\n"
        while line:
            line = line[os.write(channel, line) :]

    tester = WorkerLoop(send)
    for line in sys.stdin.buffer:
        tester.answer(_REQUEST.decode(line))


class WorkerLoop:
    """The state of this process: its device, and whether it joined the process group."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._device: Device | None = None
        self._joined: ProcessGroupSpec | None = None
        self._step = 0
        self._counters: HardwareCounterReader | None = None

    def answer(self, request: Request) -> None:
        """Process one request and send the answer."""
        if isinstance(request, InventoryRequest):
            from preflight.execution.gpu_inventory import read_gpu_inventory  # noqa: PLC0415 - only the node's process looks

            self._send(read_gpu_inventory(self._note))
        elif isinstance(request, AssignRequest):
            self._send(self._take(request))
        elif isinstance(request, CounterRequest):
            self._send(self._read_counters(request))
        elif isinstance(request, NvmlRequest):
            from preflight.execution.nvml_queries import record_nvml_answers  # noqa: PLC0415 - only `preflight day` asks

            self._send(record_nvml_answers(self._note))
        else:
            self.run(request)

    def _read_counters(self, request: CounterRequest) -> CounterReading:
        if self._counters is None:
            self._counters = HardwareCounterReader(self._note)
        try:
            return self._counters.read(request.uuids, request.since)
        except Exception as error:  # noqa: BLE001 - whatever a broken driver causes is an answer
            return CounterReading(failure=f"{type(error).__name__}: {error}")

    def run(self, do: RunRequest) -> None:
        """Run one test and send each result at once, since a test may hang or crash later; then the end mark."""
        self._step, raised = 0, False
        self._send(ProgressUpdate(STARTING))
        try:
            for result in self._results(do):
                self._send(ResultMessage(result, last=False))
            if self._device is not None:
                self._settle(self._device)
        except Exception as error:  # noqa: BLE001 - whatever a broken machine throws is a result
            self._send(ResultMessage(build_exception_result(do.test, error, self._name), last=False))
            raised = True
        self._send(ResultMessage(None, last=True, raised=raised))

    def _results(self, do: RunRequest) -> Iterator[Result]:
        """The test's results, each with its device and duration."""
        if do.group is not None and do.group != self._joined:
            self._join(do.group)
        self._commit(do.fault)
        check = importlib.import_module(f"preflight.checks.{do.test}")
        context = Context(
            device=self._device,
            devices=do.devices,
            level=do.level,
            seconds=do.seconds,
            fault=do.fault,
            note=self._note,
        )
        began = time.perf_counter()
        for result in getattr(check, f"check_{do.test}")(context):
            now = time.perf_counter()
            seconds, began = round(now - began, 3), now
            timed = msgspec.structs.replace(result, device=result.device or self._name, seconds=seconds)
            try:
                sound = round_trip_result(replace_non_finite(timed))
            except Exception:
                yield strip_result_details(timed)  # a test that reports a fault in an invalid form has still found it
                raise
            yield sound

    def _commit(self, fault: str) -> None:
        """Faults available for every test: its process hangs or crashes."""
        if fault == "hang":
            self._send(ProgressUpdate("an injected hang", self._step))
            signal.pause()
        if fault == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)

    @property
    def _name(self) -> str:
        return self._device.name if self._device else ""

    def _note(self, doing: str) -> None:
        self._step += 1
        self._send(ProgressUpdate(doing, self._step))

    def _take(self, request: AssignRequest) -> DeviceReady | DeviceRefused:
        try:
            from preflight.checks import torch_devices  # noqa: PLC0415 - torch

            taken = torch_devices.claim_device(request.seat)
        except Exception as error:  # noqa: BLE001 - whatever a broken machine throws is an answer
            failed = build_exception_result("", error, "")
            return DeviceRefused(failed.outcome, failed.reason, misconfigured=failed.misconfigured)
        if isinstance(taken, DeviceReady):
            self._device = taken.device
        return taken

    def _join(self, group: ProcessGroupSpec) -> None:
        from preflight.checks import torch_devices  # noqa: PLC0415 - torch

        if self._device is None:
            raise ValueError("a process without a device cannot join the peers")
        self._note(JOINING)
        torch_devices.join_process_group(group, self._device)
        self._joined = group

    def _settle(self, device: Device) -> None:
        from preflight.checks import torch_devices  # noqa: PLC0415 - torch

        gc.collect()
        torch_devices.release_device_memory(device)


def round_trip_result(result: Result) -> Result:
    """A result as its reader decodes it.

    Raises:
        msgspec.ValidationError: it contains what a result cannot.
        TypeError: it contains what JSON cannot.
    """
    return _RESULT.decode(msgspec.json.encode(result))


def strip_result_details(result: Result) -> Result:
    """A result without any field that could have a wrong type."""
    return Result(
        test=result.test,
        outcome=result.outcome,
        device=str(result.device),
        reason=str(result.reason),
        seconds=result.seconds,
    )


def build_exception_result(test: str, error: Exception, device: str) -> Result:
    """The result for an exception: `preflight.execution.cuda_errors` says whether it is the device's fault."""
    words = " ".join(str(error).split())[:500] or type(error).__name__
    if isinstance(error, ModuleNotFoundError):
        reason = f"the module {error.name} is not installed; install it: pip install 'gpu-healthd[preflight]'"
        return Result(test=test, outcome=Outcome.NOT_RUN, device=device, reason=reason, misconfigured=True)
    meaning = judge_exception(error)
    reason = meaning.build_reason(words if meaning is not INCONCLUSIVE else f"{type(error).__name__}: {words}")
    return Result(test=test, outcome=meaning.outcome, device=device, reason=reason, misconfigured=meaning.misconfigured)


if __name__ == "__main__":
    main(int(sys.argv[1]))
    os._exit(0)  # torch's cleanup may hang, and is not needed
