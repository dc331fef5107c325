"""Measures a step: sections and values, from the host at once, from a GPU some steps later.

It never waits for the GPU. It sets marks in the stream where sections begin and end, and copies the values behind them.
The ring's entry is written when its step ends, and again when the GPU has passed its last mark.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple, SupportsFloat

from healthd.trainer.beacons import step_ring
from healthd.trainer.beacons.beacon import Beacon, NullBeacon
from healthd.trainer.beacons.step_ring import (
    AWAITED,
    GRAD_NORM,
    LOSS,
    ON_DEVICE,
    SECTION_NAMES,
    TOKENS,
    EndedStep,
    EntryMeasurements,
    StepSection,
)
from healthd.trainer.framework import Device, LateNumber, device_in_use

SAME_MARK_SECONDS = 4e-6  # no launch takes less: a section that follows sooner begins where the last one ended
_NUMBERS = LOSS | GRAD_NORM | TOKENS
_NO_SECONDS = (0.0,) * len(StepSection)
_NAMES = {LOSS: "loss", GRAD_NORM: "grad_norm", TOKENS: "tokens"}

_log = logging.getLogger("healthd.trainer")


class _PendingStep(NamedTuple):
    """A finished step whose values the GPU has not returned yet."""

    ended: EndedStep
    told: EntryMeasurements  # by the host
    last: Any  # the mark behind all of it
    marks: list[Any]
    intervals: list[tuple[int, Any, Any]]
    late: dict[int, LateNumber]


class StepMeasurements:
    """The running step's measurements, and pending ones."""

    def __init__(self, beacon: Beacon | NullBeacon, monotonic: Callable[[], float]) -> None:
        self._beacon = beacon
        self.writer = writer = beacon.writer
        self._heard = isinstance(beacon, Beacon)
        self._monotonic = monotonic
        self._device: Device | None = None
        self._waiting: deque[_PendingStep] = deque()
        self._warned: set[str] = set()
        self._marked_at = 0.0
        self._late: dict[int, LateNumber] = {}
        self._marks: list[Any] = []
        self._intervals: list[tuple[int, Any, Any]] = []
        self.sections = {name: writer.timed_section(at) for at, name in enumerate(SECTION_NAMES, 1)}
        self.reset()

    def use(self, device: Device) -> None:
        """Time sections on this GPU from now on."""
        self._device = device
        self.writer.marker = self._mark

    @property
    def touched(self) -> int:
        """0 while the running step reported nothing."""
        return self.writer.touched

    def reset(self) -> None:
        """Discard the running step's reports."""
        self.writer.reset()
        self._loss = self._grad_norm = 0.0
        self._tokens = 0
        if self._marks or self._late:
            self._marks, self._intervals, self._late = [], [], {}

    def unknown(self, name: object) -> AbstractContextManager[None]:
        """Return `other` for an unknown section, with one warning."""
        known = ", ".join(self.sections)
        self._warn("section", f"section {name!r} is counted as 'other'; there are {known}")
        return self.sections["other"]

    def report(self, loss: SupportsFloat | None, grad_norm: SupportsFloat | None, tokens: SupportsFloat | None) -> None:
        """Record the loop's values of its step."""
        if not self._heard:
            return
        if loss is not None and (number := self._number(LOSS, loss)) is not None:
            self._loss = number
            self.writer.touched |= LOSS
        if grad_norm is not None and (number := self._number(GRAD_NORM, grad_norm)) is not None:
            self._grad_norm = number
            self.writer.touched |= GRAD_NORM
        if tokens is not None and (number := self._number(TOKENS, tokens)) is not None:
            if 0 <= number < step_ring.NUMBER_MAX:
                self._tokens = int(number)
                self.writer.touched |= TOKENS
            else:
                self._warn("count", f"tokens not reported: {number} is not a count")

    def end(self) -> None:
        """Write the completed step to the ring, with values of earlier steps that have arrived."""
        if self._marks or self._late:
            self._end_on_device()
            self.reset()
        else:
            self.writer.end_told_step(self._loss, self._grad_norm, self._tokens)
            self._loss = self._grad_norm = 0.0
            self._tokens = 0
        if self._waiting:
            self.write_arrived()

    def write_arrived(self) -> None:
        """Write what the GPU has returned so far; give up what is too late."""
        waiting, device = self._waiting, self._device
        try:
            while waiting and device is not None and device.passed(waiting[0].last):
                self._complete(waiting[0], device)
                waiting.popleft()
        except Exception as error:  # noqa: BLE001 - a GPU that is lost is the loop's to notice, not ours
            self._give_up(error)
        while len(waiting) > step_ring.LATE_STEPS_MAX:
            given_up = waiting.popleft()
            self._beacon.complete(given_up.ended, given_up.told)

    def rest_is_communication(self) -> None:
        """Count the rest of a backward pass as waiting for peers; does nothing outside of one."""
        if self.writer.current == StepSection.BACKWARD:
            self.writer.enter(StepSection.COMMUNICATION)

    def _mark(self, closing: int, now: float) -> None:
        """Mark where one section ends and another, or none, begins."""
        assert self._device is not None  # noqa: S101 - the callers looked
        marks = self._marks
        if closing or not marks or now - self._marked_at > SAME_MARK_SECONDS:
            try:
                marks.append(self._device.mark())
            except Exception as error:  # noqa: BLE001 - of any make; the loop must go on
                self._give_up(error)
                return
            if closing and len(marks) > 1:
                self._intervals.append((closing, marks[-2], marks[-1]))
        self._marked_at = self._monotonic()

    def _number(self, flag: int, value: SupportsFloat) -> float | None:
        """Return the number if it is available now; otherwise it is pending, or warned about."""
        if type(value) is float:
            return value
        try:
            if type(value) is int:
                return float(value)
            if not _is_on_device(value):
                detach = getattr(value, "detach", None)  # torch warns of float(tensor with gradient)
                return float(detach() if detach is not None else value)
            self._hand_over(flag, value)
        except Exception as error:  # noqa: BLE001 - whatever a loop hands in
            self._warn(_NAMES[flag], f"{_NAMES[flag]} not reported, {type(error).__name__}: {error}")
        return None

    def _hand_over(self, flag: int, value: object) -> None:
        if self._device is None:
            self._device = device_in_use()
        late = self._device.hand_over(value) if self._device is not None else None
        if late is None:
            raise TypeError("it is on a device that cannot return it without waiting")
        self.writer.marker = self._mark
        self._late[flag] = late
        self.writer.touched |= AWAITED

    def _end_on_device(self) -> None:
        """End a step timed by the GPU: its time counts, not the host's, and is unknown until it arrives."""
        flags = self.writer.touched
        told = EntryMeasurements(flags & _NUMBERS, _NO_SECONDS, self._loss, self._grad_norm, self._tokens)
        ended = self._beacon.end_measured_step(told._replace(flags=told.flags | AWAITED))
        try:
            if self._late and self._device is not None:
                self._marks.append(self._device.mark())
        except Exception as error:  # noqa: BLE001 - of any make; the loop must go on
            self._give_up(error)
        if self._device is None:
            self._beacon.complete(ended, told)
            return
        self._waiting.append(_PendingStep(ended, told, self._marks[-1], self._marks, self._intervals, self._late))

    def _complete(self, step: _PendingStep, device: Device) -> None:
        flags, seconds = step.told.flags, list(_NO_SECONDS)
        for section, earlier, later in step.intervals:
            seconds[section] += device.between(earlier, later)
            flags |= 1 << section >> 1 | ON_DEVICE
        numbers = {LOSS: step.told.loss, GRAD_NORM: step.told.grad_norm, TOKENS: float(step.told.tokens)}
        for flag, late in step.late.items():
            numbers[flag] = late.read()
            flags |= flag
        if not 0 <= numbers[TOKENS] < step_ring.NUMBER_MAX:
            numbers[TOKENS], flags = 0.0, flags & ~TOKENS
        fitting = [step_ring.seconds_that_fit(value) for value in seconds]
        measured = EntryMeasurements(flags, fitting, numbers[LOSS], numbers[GRAD_NORM], int(numbers[TOKENS]))
        self._beacon.complete(step.ended, measured)
        device.free(step.marks)

    def _give_up(self, error: Exception) -> None:
        self._warn("device", f"the GPU's times and values can no longer be read: {error}")
        self._device = self.writer.marker = None
        for step in self._waiting:
            self._beacon.complete(step.ended, step.told)
        self._waiting.clear()
        self._marks, self._intervals, self._late = [], [], {}
        self.writer.touched &= ~AWAITED

    def _warn(self, what: str, problem: str) -> None:
        if what not in self._warned:
            self._warned.add(what)
            _log.warning("%s; training continues", problem)


def _is_on_device(value: object) -> bool:
    return getattr(getattr(value, "device", None), "type", "cpu") != "cpu"


def _validate_tokens(number: float) -> int:
    """Raise ValueError for an invalid token count."""
    if not 0 <= number < step_ring.NUMBER_MAX:
        raise ValueError(f"{number} is not a number of tokens")
    return int(number)
