"""The test processes of a run: one for the node and one per device. Starts them, assigns devices, replaces them."""

from __future__ import annotations

import errno
import os
import socket
import struct
from collections.abc import Iterable, Sequence

from preflight.check_context import Device
from preflight.execution.device_assignment import HOST_DEVICES, VISIBLE, UnassignedDevice, assign_devices
from preflight.execution.worker_outcomes import build_worker_results
from preflight.execution.worker_process import TestProcess, end_processes
from preflight.execution.worker_requests import WorkerRequest, await_answers, conclude_request
from preflight.host.nvml_library import count_device_files
from preflight.plan import START_WATCHDOG_S
from preflight.results import Outcome
from preflight.worker_messages import (
    AssignRequest,
    DeviceAssignment,
    DeviceReady,
    DeviceRefused,
    GpuInventory,
    InventoryRequest,
)
from vocabulary.clock import Clock

LOOK_WATCHDOG_S = 60.0  # startup, and waking a sleeping driver: seconds per GPU without persistence mode
_LOCK_PREFIX = "\0gpu-healthd/preflight/"  # an abstract name, not a path
_CREDENTIALS = struct.Struct("3i")  # pid, uid, gid


class DeviceWorker:
    """One device and its process. `lost` is the reason why it has none for the rest of the run.

    `device` is what the first process found, and stays known.
    """

    def __init__(self, seat: DeviceAssignment) -> None:
        self.seat = seat
        self.process: TestProcess | None = None
        self.taking: WorkerRequest | None = None
        self.device: Device | None = None
        self.lost: UnassignedDevice | None = None


class WorkerPool:
    """All processes of one run. The creator closes it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads = len(os.sched_getaffinity(0))
        self._claims = GpuLocks()
        self._node: TestProcess | None = None
        self._spare: list[TestProcess] = []
        self.members: list[DeviceWorker] = []
        self.unseated: tuple[UnassignedDevice, ...] = ()
        self.left_out = ""
        self.software: dict[str, str] = {}

    def assemble(self) -> None:
        """Find the devices and assign each to a process, which imports torch while the driver is queried."""
        guess = count_device_files() or HOST_DEVICES
        look = WorkerRequest(self.node(), InventoryRequest(), LOOK_WATCHDOG_S, self._clock)
        self._spare = [self._start(guess) for _ in range(guess)]
        await_answers([look], self._clock)
        if not isinstance(look.answer, GpuInventory):
            why = build_worker_results("", conclude_request(look, self._clock))[-1]
            self.unseated = (UnassignedDevice("", why.outcome, f"the driver cannot list the GPUs: {why.reason}"),)
            self.drop_node()
            return
        if look.answer.driver:
            self.software["driver"] = look.answer.driver
        found = assign_devices(look.answer, os.environ.get(VISIBLE), self._threads)
        self.unseated, self.left_out = found.unseated, found.left_out
        if taken := self._claims.hold(seat.uuid for seat in found.seats if seat.uuid):
            self.unseated = (UnassignedDevice("", Outcome.NOT_RUN, taken, misconfigured=True),)
            return
        self.members = [DeviceWorker(seat) for seat in found.seats]
        for member in self.members:
            self._give(member)

    def node(self) -> TestProcess:
        """The process for tests of the node, created on demand."""
        if self._node is None:
            self._node = TestProcess("", self._threads)
        return self._node

    def drop_node(self) -> None:
        """End the node's process: it hangs, or has ended."""
        if self._node is not None:
            end_processes([self._node], self._clock)
        self._node = None

    def present(self) -> list[DeviceWorker]:
        """The members with a working device, each with a process. Newly lost members are marked."""
        for member in self.members:
            if member.process is None and member.lost is None:
                self._give(member)
        taking = [member.taking for member in self.members if member.taking is not None]
        await_answers(taking, self._clock)
        for member in self.members:
            if member.taking is not None:
                self._seat(member, member.taking)
        return [member for member in self.members if member.lost is None]

    def dismiss(self, members: Sequence[DeviceWorker]) -> None:
        """End the processes of these; members not marked lost get new ones on demand."""
        end_processes([member.process for member in members if member.process is not None], self._clock)
        for member in members:
            member.process = member.taking = None

    def close(self) -> None:
        """End every process."""
        processes = [self._node, *self._spare, *(member.process for member in self.members)]
        end_processes([process for process in processes if process is not None], self._clock)
        self._claims.close()

    def _start(self, processes: int) -> TestProcess:
        return TestProcess("", max(1, self._threads // processes))

    def _give(self, member: DeviceWorker) -> None:
        process = self._spare.pop() if self._spare else self._start(len(self.members))
        process.name = member.seat.name
        member.process = process
        member.taking = WorkerRequest(process, AssignRequest(member.seat), START_WATCHDOG_S, self._clock)

    def _seat(self, member: DeviceWorker, taking: WorkerRequest) -> None:
        """Record the device's response, or its absence."""
        member.taking = None
        if isinstance(taking.answer, DeviceReady):
            member.device = taking.answer.device
            self.software |= taking.answer.software
            return
        if isinstance(taking.answer, DeviceRefused):
            why = taking.answer
            member.lost = UnassignedDevice(member.seat.name, why.outcome, why.reason, why.misconfigured)
        else:
            last = build_worker_results("", conclude_request(taking, self._clock))[-1]
            member.lost = UnassignedDevice(
                member.seat.name, last.outcome, f"the worker process does not start: {last.reason}"
            )
        self.dismiss([member])


class GpuLocks:
    """The GPUs locked by this preflight, so that no other tests them at the same time: that would slow both and blame the GPU.

    A lock is an abstract socket name, unique in the network namespace. The kernel releases it with the process; no file
    remains. The creator closes it.
    """

    def __init__(self) -> None:
        self._held: list[socket.socket] = []

    def hold(self, uuids: Iterable[str]) -> str:
        """Lock GPUs, by UUID or that of a MIG instance. Returns the current holder as text; empty if none or unknown."""
        for uuid in uuids:
            claim = socket.socket(socket.AF_UNIX)
            self._held.append(claim)
            try:
                claim.bind(_LOCK_PREFIX + uuid)
                claim.listen()
            except OSError as error:
                if error.errno != errno.EADDRINUSE:
                    return ""  # a kernel without abstract names; running processes are detected anyway
                return f"another preflight{_describe_lock_holder(uuid)} holds {uuid}: wait until it ends"
        return ""

    def close(self) -> None:
        """Release all locks."""
        for claim in self._held:
            claim.close()
        self._held.clear()


def _describe_lock_holder(uuid: str) -> str:
    with socket.socket(socket.AF_UNIX) as asking:
        asking.setblocking(False)
        try:
            asking.connect(_LOCK_PREFIX + uuid)
            answer = asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        except OSError:
            return ""  # it has just ended
    return f", process {_CREDENTIALS.unpack(answer)[0]},"
