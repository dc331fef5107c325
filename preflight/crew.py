"""The test processes of a run: the node's, and one for each device. Starts them, gives them their device, replaces them."""

from __future__ import annotations

import os
from collections.abc import Sequence

from preflight.checks.context import Device
from preflight.claims import Claims
from preflight.driver import device_files
from preflight.endings import results_of
from preflight.lockstep import Turn, ending, hear_out
from preflight.messages import Inventory, Look, Ready, Refused, Seat, Take
from preflight.plan import START_WATCHDOG_S
from preflight.process import TestProcess, end
from preflight.results import Outcome
from preflight.seats import HOST_DEVICES, VISIBLE, Unseated, seating
from vocabulary.clock import Clock

LOOK_WATCHDOG_S = 60.0  # to start, and to wake a driver that sleeps: seconds for each GPU without persistence mode


class Member:
    """One device, and the process that has it. `lost` says why there is none, and that there will be none in this run.

    `device` is what the first process found, and stays known.
    """

    def __init__(self, seat: Seat) -> None:
        self.seat = seat
        self.process: TestProcess | None = None
        self.taking: Turn | None = None
        self.device: Device | None = None
        self.lost: Unseated | None = None


class Crew:
    """All processes of one run. Whoever makes it closes it."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._threads = len(os.sched_getaffinity(0))
        self._claims = Claims()
        self._node: TestProcess | None = None
        self._spare: list[TestProcess] = []
        self.members: list[Member] = []
        self.unseated: tuple[Unseated, ...] = ()
        self.left_out = ""
        self.software: dict[str, str] = {}

    def assemble(self) -> None:
        """Find the devices and give each to a process, which begins to import torch while the driver is asked."""
        guess = device_files() or HOST_DEVICES
        look = Turn(self.node(), Look(), LOOK_WATCHDOG_S, self._clock)
        self._spare = [self._start(guess) for _ in range(guess)]
        hear_out([look], self._clock)
        if not isinstance(look.answer, Inventory):
            why = results_of("", ending(look, self._clock))[-1]
            self.unseated = (Unseated("", why.outcome, f"the driver does not say which GPUs are here: {why.reason}"),)
            self.drop_node()
            return
        if look.answer.driver:
            self.software["driver"] = look.answer.driver
        found = seating(look.answer, os.environ.get(VISIBLE), self._threads)
        self.unseated, self.left_out = found.unseated, found.left_out
        if taken := self._claims.hold(seat.uuid for seat in found.seats if seat.uuid):
            self.unseated = (Unseated("", Outcome.NOT_RUN, taken, misconfigured=True),)
            return
        self.members = [Member(seat) for seat in found.seats]
        for member in self.members:
            self._give(member)

    def node(self) -> TestProcess:
        """The process for tests of the node; a new one if there is none."""
        if self._node is None:
            self._node = TestProcess("", self._threads)
        return self._node

    def drop_node(self) -> None:
        """End the node's process: it hangs, or is gone."""
        if self._node is not None:
            end([self._node], self._clock)
        self._node = None

    def present(self) -> list[Member]:
        """The members whose device works, each in a process that has it. Those found lost are marked so."""
        for member in self.members:
            if member.process is None and member.lost is None:
                self._give(member)
        taking = [member.taking for member in self.members if member.taking is not None]
        hear_out(taking, self._clock)
        for member in self.members:
            if member.taking is not None:
                self._seat(member, member.taking)
        return [member for member in self.members if member.lost is None]

    def dismiss(self, members: Sequence[Member]) -> None:
        """End the processes of these; those that aren't marked lost get new ones when they are needed again."""
        end([member.process for member in members if member.process is not None], self._clock)
        for member in members:
            member.process = member.taking = None

    def close(self) -> None:
        """End every process."""
        processes = [self._node, *self._spare, *(member.process for member in self.members)]
        end([process for process in processes if process is not None], self._clock)
        self._claims.close()

    def _start(self, processes: int) -> TestProcess:
        return TestProcess("", max(1, self._threads // processes))

    def _give(self, member: Member) -> None:
        process = self._spare.pop() if self._spare else self._start(len(self.members))
        process.name = member.seat.name
        member.process = process
        member.taking = Turn(process, Take(member.seat), START_WATCHDOG_S, self._clock)

    def _seat(self, member: Member, taking: Turn) -> None:
        """The device has answered, or hasn't."""
        member.taking = None
        if isinstance(taking.answer, Ready):
            member.device = taking.answer.device
            self.software |= taking.answer.software
            return
        if isinstance(taking.answer, Refused):
            why = taking.answer
            member.lost = Unseated(member.seat.name, why.outcome, why.reason, why.misconfigured)
        else:
            last = results_of("", ending(taking, self._clock))[-1]
            member.lost = Unseated(member.seat.name, last.outcome, f"it does not start: {last.reason}")
        self.dismiss([member])
