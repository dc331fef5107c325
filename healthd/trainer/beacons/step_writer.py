"""Writes a rank's steps into its beacon page, and times their sections on the host.

`_step_writer.c` is the same in C, built where a compiler is; its pages are equal byte for byte (`test_step_writer.py`).
"""

from __future__ import annotations

import mmap
import struct
import time
from collections.abc import Callable
from zlib import crc32

from healthd.trainer.beacons import beacon_page, step_ring
from healthd.trainer.beacons.beacon_page import STATE_AT, Phase
from healthd.trainer.beacons.step_ring import ENTRIES, ENTRY_BYTES, EndedStep, EntryMeasurements, StepSection
from vocabulary.clock import Clock

_RING_AT = beacon_page.RING_AT
_FLAGS = tuple(1 << section >> 1 for section in StepSection)

# A block and its checksum reach the page in one call of C: between two calls the interpreter may run another thread for
# milliseconds, or a kill may come, and the checksum would not match what a dead rank did last.
_pack_state = beacon_page.STATE.pack
_write_state = struct.Struct(f"<{beacon_page.STATE.size}sI").pack_into
_pack_untold = struct.Struct(f"{step_ring.HEAD.format}{step_ring.BODY.size - step_ring.HEAD.size}x").pack
_write_entry = struct.Struct(f"<{step_ring.BODY.size}sI").pack_into


class StepWriter:
    """The only writer of a page's state and ring. No method makes a system call.

    `touched` holds an entry's flags (`step_ring`) of what the running step told: 0 while that is nothing. `marker` is
    called where a section begins or ends, with the section that ends (0: none) and the monotonic time in seconds.
    """

    __slots__ = (
        *("_began", "_completed", "_current", "_entered", "_monotonic", "_outer", "_page", "_phase", "_seconds"),
        *("_section", "_sequence", "_since", "_step", "_wall", "marker", "touched"),
    )

    touched: int
    _current: int
    _seconds: list[float]

    def __init__(self, page: mmap.mmap | bytearray, clock: Clock | None = None) -> None:
        """Args: `page` of `PAGE_BYTES`; `clock`: None for the system's."""
        self._page: mmap.mmap | bytearray | memoryview = page
        self._wall = clock.wall if clock else time.time
        self._monotonic = clock.monotonic if clock else time.monotonic
        self._sequence = self._completed = 0
        self._step, self._phase, self._section = -1, int(Phase.STARTING), 0
        self._since = self._began = self._entered = 0.0
        self._outer: list[int] = []
        self.marker: Callable[[int, float], None] | None = None
        self.reset()

    def timed_section(self, section: int) -> TimedSection:
        """Return a context manager that enters and leaves the section."""
        return TimedSection(section, self.enter, self.leave)

    def begin_step(self, step: int) -> None:
        """Start the step `step` now."""
        self._step = step
        self._phase, self._section = 1, 0
        self._since = now = self._wall()
        self._began = self._monotonic()
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, step, now, now, self._completed, 1, 0, sequence)
        _write_state(self._page, STATE_AT, body, crc32(body))

    def section(self, section: int) -> None:
        """Publish that the step is in a section from now on; 0 (`StepSection.NONE`): in none."""
        self._section = section
        self._sequence = sequence = self._sequence + 1
        now = self._wall()
        body = _pack_state(sequence, self._step, self._since, now, self._completed, self._phase, section, sequence)
        _write_state(self._page, STATE_AT, body, crc32(body))

    def enter(self, section: int) -> None:
        """Time and publish a section from now on; the one around it stands still."""
        now = self._monotonic()
        current = self._current
        if current:
            self._seconds[current] += now - self._entered
        self._outer.append(current)
        self._current, self._entered = section, now
        self.touched |= _FLAGS[section]
        if self.marker is not None:
            self.marker(current, now)
        self._section = section
        self._sequence = sequence = self._sequence + 1
        now = self._wall()
        body = _pack_state(sequence, self._step, self._since, now, self._completed, self._phase, section, sequence)
        _write_state(self._page, STATE_AT, body, crc32(body))

    def leave(self, section: int) -> None:
        """End a section, and with it all that were entered in it and not left."""
        now = self._monotonic()
        inner = current = self._current
        self._seconds[current] += now - self._entered
        outer = self._outer.pop() if self._outer else 0
        while inner != section and self._outer:
            inner, outer = outer, self._outer.pop()
        self._current, self._entered = outer, now
        if self.marker is not None:
            self.marker(current, now)
        self._section = outer
        self._sequence = sequence = self._sequence + 1
        now = self._wall()
        body = _pack_state(sequence, self._step, self._since, now, self._completed, self._phase, outer, sequence)
        _write_state(self._page, STATE_AT, body, crc32(body))

    @property
    def current(self) -> int:
        """The section that is being timed; 0: none."""
        return self._current

    def reset(self) -> None:
        """Forget what the running step told."""
        self.touched = self._current = 0
        self._seconds = [0.0] * len(_FLAGS)
        if self._outer:
            self._outer = []

    def end_step(self) -> None:
        """Finish the current step, which told nothing but its time, and write it to the ring."""
        seconds = self._monotonic() - self._began
        completed, step, since = self._completed, self._step, self._since
        body = _pack_untold(completed, step, since, seconds, 0)
        _write_entry(self._page, _RING_AT + completed % ENTRIES * ENTRY_BYTES, body, crc32(body))
        self._completed = completed = completed + 1
        self._phase, self._section = 2, 0
        self._since = since = since + seconds
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, step, since, since, completed, 2, 0, sequence)
        _write_state(self._page, STATE_AT, body, crc32(body))

    def end_told_step(self, loss: float, grad_norm: float, tokens: int) -> None:
        """Finish the current step with its sections and with those values that `touched` names; then `reset`."""
        self.end_measured_step(EntryMeasurements(self.touched, self._seconds, loss, grad_norm, tokens))
        self.reset()

    def end_measured_step(self, measured: EntryMeasurements) -> EndedStep:
        """Finish the current step with its measurements.

        Returns:
            What `complete` needs once the remaining values are available.
        """
        seconds = self._monotonic() - self._began
        ended = (self._completed, self._step, self._since, seconds)
        self.complete(ended, measured)
        self._completed += 1
        self._phase, self._section = 2, 0
        self._since = since = self._since + seconds
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(sequence, self._step, since, since, self._completed, 2, 0, sequence)
        _write_state(self._page, STATE_AT, body, crc32(body))
        return ended

    def complete(self, ended: EndedStep, measured: EntryMeasurements) -> None:
        """Rewrite a finished step's entry, unless a later step has taken its place."""
        if ended[0] > self._completed - ENTRIES:
            at = _RING_AT + ended[0] % ENTRIES * ENTRY_BYTES
            self._page[at : at + ENTRY_BYTES] = step_ring.pack_entry(*ended, measured)

    def phase(self, phase: int) -> None:
        """Set a phase other than a step."""
        now = self._wall()
        if phase != self._phase or self._since == 0.0:
            self._phase, self._since, self._section = int(phase), now, 0
        self._sequence = sequence = self._sequence + 1
        body = _pack_state(
            sequence, self._step, self._since, now, self._completed, self._phase, self._section, sequence
        )
        _write_state(self._page, STATE_AT, body, crc32(body))

    def close(self) -> None:
        """Let go of the page, which can then be unmapped; a later write raises TypeError."""
        self._page = memoryview(b"")


class TimedSection:
    """A section as a context manager; one for all steps, and it may be nested in itself."""

    __slots__ = ("_enter", "_leave", "_section")

    def __init__(self, section: int, enter: Callable[[int], None], leave: Callable[[int], None]) -> None:
        self._section = section
        self._enter, self._leave = enter, leave

    def __enter__(self) -> None:
        self._enter(self._section)

    def __exit__(self, *_: object) -> None:
        self._leave(self._section)
