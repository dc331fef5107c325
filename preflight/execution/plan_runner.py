"""Runs a plan: one process per device and one for the node, in lockstep, with a watchdog over each test.

A hang or crash is a result that names its device, and the other devices continue. Processes live for the whole run, so that
torch, CUDA and the process group are initialized once.
"""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Collection, Sequence
from pathlib import Path

from preflight.check_context import Device
from preflight.execution.counter_results import CounterConclusions, add_counter_conclusions
from preflight.execution.counter_watch import CounterWatch
from preflight.execution.device_assignment import UnassignedDevice
from preflight.execution.progress_output import Progress
from preflight.execution.worker_outcomes import (
    WorkerExit,
    build_peer_results,
    build_worker_results,
    find_blamed_workers,
)
from preflight.execution.worker_pool import DeviceWorker, WorkerPool
from preflight.execution.worker_requests import WorkerRequest, await_answers, conclude_request
from preflight.plan import START_WATCHDOG_S, Plan, Scope, Spec, check_devices
from preflight.results import Outcome, Result
from preflight.worker_messages import ProcessGroupSpec, RunRequest
from vocabulary.clock import Clock


class PlanRunner:
    """One run of a plan with one or more rounds. A context manager; leaving it ends every process."""

    def __init__(self, plan: Plan, clock: Clock, progress: Progress) -> None:
        """Starts nothing yet. `progress` is called when a test begins and ends."""
        self._plan = plan
        self._clock = clock
        self._progress = progress
        self._crew = WorkerPool(clock)
        self._counters = CounterWatch(self._crew, plan, clock)
        self._told: set[str] = set()
        self._group: ProcessGroupSpec | None = None
        self._place, self._groups = "", 0
        self._unjoined = False  # NCCL did not start, and would not the next time

    def __enter__(self) -> PlanRunner:  # noqa: PYI034 - Self is not in Python 3.10
        """Find the devices.

        Raises:
            PlanError: a fault is to be injected on a missing device.
        """
        try:
            if self._plan.needs(Scope.DEVICE, Scope.PEERS):
                self._crew.assemble()
            check_devices(self._plan, self.names)
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._crew.close()
        if self._place:
            shutil.rmtree(self._place, ignore_errors=True)

    @property
    def names(self) -> tuple[str, ...]:
        """The names of all devices, tested or not; empty if unknown."""
        seated = [member.seat.name for member in self._crew.members]
        return (*seated, *(unseated.name for unseated in self._crew.unseated if unseated.name))

    @property
    def devices(self) -> tuple[Device, ...]:
        """The devices that worked, at least initially, in order; known after the first device test."""
        return tuple(member.device for member in self._crew.members if member.device is not None)

    @property
    def left_out(self) -> str:
        """Which GPUs of this node are hidden from this process and not tested, as a sentence; empty if none."""
        return self._crew.left_out

    @property
    def software(self) -> dict[str, str]:
        """The versions that results depend on."""
        return self._crew.software

    def round(self, only: Collection[str] | None = None) -> tuple[Result, ...]:
        """Run the plan once; one or more results for each of its tests and devices, in order.

        Hardware counters are read around each test of devices; `counter_conclusions` holds what they show.

        Args:
            only: the tests to run; None: all.
        """
        results: list[Result] = []
        self._counters.begin_round()
        self._counters.read()
        for spec in self._plan.specs:
            if only is not None and spec.test not in only:
                continue
            self._progress.begins(spec.test)
            if spec.scope is Scope.NODE:
                found = shown = self._node(spec)
                self._counters.read()
            else:
                found = self._on_devices(spec)
                shown = add_counter_conclusions(found, self._counters.conclude(spec.test))
            self._progress.ended(shown)
            results += found
        if untested := add_counter_conclusions((), self._counters.conclude_round()):
            self._progress.ended(untested)
        return tuple(results)

    @property
    def counter_conclusions(self) -> tuple[CounterConclusions, ...]:
        """What the hardware counters showed during the last round. They outweigh comparisons, and are added after them."""
        return tuple(self._counters.conclusions)

    def _node(self, spec: Spec) -> tuple[Result, ...]:
        turn = WorkerRequest(self._crew.node(), self._request(spec, ""), spec.watchdog_s, self._clock)
        await_answers([turn], self._clock)
        end = conclude_request(turn, self._clock)
        if end.how is not WorkerExit.DONE:
            self._crew.drop_node()
        return build_worker_results(spec.test, end)

    def _on_devices(self, spec: Spec) -> tuple[Result, ...]:
        present = self._crew.present()
        absent = list(self._crew.unseated)
        absent += [member.lost for member in self._crew.members if member.lost is not None]
        missing = tuple(self._missing(spec, unseated) for unseated in absent)
        if spec.scope is Scope.DEVICE:
            places = {name: place for place, name in enumerate(self.names)}
            found = (*missing, *self._each(spec, present))
            return tuple(sorted(found, key=lambda result: places.get(result.device, -1)))
        if missing:
            return missing + tuple(_build_blocked_result(spec, member, missing) for member in present)
        if len(present) < 2 or any(member.seat.mig for member in present):
            reason = "a single device has no peer" if len(present) < 2 else "MIG instances cannot be peers"
            return (Result(test=spec.test, outcome=Outcome.NOT_APPLICABLE, reason=reason),)
        if self._unjoined:
            return tuple(_build_unjoined_result(spec, member) for member in present)
        return self._peers(spec, present)

    def _each(self, spec: Spec, present: Sequence[DeviceWorker]) -> tuple[Result, ...]:
        turns = self._turns(spec, present)
        await_answers(turns, self._clock)
        endings = [conclude_request(turn, self._clock) for turn in turns]
        broken = [(member, end) for member, end in zip(present, endings, strict=True) if end.how is not WorkerExit.DONE]
        for member, end in broken:
            if end.how is not WorkerExit.RAISED:  # after an exception CUDA may refuse everything: use a new process
                member.lost = _describe_lost_device(member, spec)
        self._crew.dismiss([member for member, _ in broken])
        return tuple(result for end in endings for result in build_worker_results(spec.test, end))

    def _peers(self, spec: Spec, present: Sequence[DeviceWorker]) -> tuple[Result, ...]:
        if self._group is None:
            self._group = self._new_group(len(present))
        turns = self._turns(spec, present)
        await_answers(turns, self._clock, together=True)
        endings = [conclude_request(turn, self._clock) for turn in turns]
        if at_fault := find_blamed_workers(endings):  # the rest of their process group is unusable
            for member, end_of in zip(present, endings, strict=True):
                if end_of in at_fault and end_of.how is not WorkerExit.RAISED and not end_of.joining:
                    member.lost = _describe_lost_device(member, spec)
            self._crew.dismiss(present)
            self._group = None
            self._unjoined = any(end_of.joining for end_of in at_fault)
        return build_peer_results(spec.test, endings)

    def _turns(self, spec: Spec, present: Sequence[DeviceWorker]) -> list[WorkerRequest]:
        return [
            WorkerRequest(member.process, self._request(spec, member.seat.name), spec.watchdog_s, self._clock)
            for member in present
            if member.process is not None
        ]

    def _request(self, spec: Spec, device: str) -> RunRequest:
        injected = self._plan.faults.get(spec.test)
        here = injected is not None and (not device or device == (injected.device or self._crew.members[-1].seat.name))
        return RunRequest(
            test=spec.test,
            level=self._plan.level,
            seconds=spec.seconds[self._plan.level],
            fault=injected.fault if injected is not None and here else "",
            devices=self.devices,
            group=self._group if spec.scope is Scope.PEERS else None,
        )

    def _new_group(self, ranks: int) -> ProcessGroupSpec:
        """A new rendezvous file. Torch's timeouts are longer than our watchdogs, which identify the missing process."""
        self._place = self._place or tempfile.mkdtemp(prefix="preflight-")
        self._groups += 1
        limit_s = max(spec.watchdog_s for spec in self._plan.specs) + START_WATCHDOG_S
        return ProcessGroupSpec(str(Path(self._place) / f"group-{self._groups}"), ranks, limit_s)

    def _missing(self, spec: Spec, why: UnassignedDevice) -> Result:
        """The results of an untestable device: its fault once, then 'not run'."""
        outcome = Outcome.NOT_RUN if why.name in self._told and why.outcome is not Outcome.ERROR else why.outcome
        self._told.add(why.name)
        reason = f"{why.reason}; run it again with --only {spec.test}" if why.by_test else why.reason
        return Result(test=spec.test, outcome=outcome, device=why.name, reason=reason, misconfigured=why.misconfigured)


def run_plan(plan: Plan, clock: Clock, progress: Progress) -> tuple[Result, ...]:
    """Run all of `plan` once.

    Raises:
        PlanError: as `PlanRunner`.
    """
    with PlanRunner(plan, clock, progress) as runner:
        return add_counter_conclusions(runner.round(), runner.counter_conclusions)


def _describe_lost_device(member: DeviceWorker, spec: Spec) -> UnassignedDevice:
    return UnassignedDevice(member.seat.name, Outcome.NOT_RUN, f"{spec.test} crashed its process", by_test=True)


def _build_blocked_result(spec: Spec, member: DeviceWorker, missing: Sequence[Result]) -> Result:
    names = ", ".join(result.device or "all devices" for result in missing)
    return Result(
        test=spec.test, outcome=Outcome.NOT_RUN, device=member.seat.name, reason=f"it needs {names} as a peer"
    )


def _build_unjoined_result(spec: Spec, member: DeviceWorker) -> Result:
    reason = "NCCL (on the host gloo) did not start for an earlier test"
    return Result(test=spec.test, outcome=Outcome.NOT_RUN, device=member.seat.name, reason=reason)
