"""The demo's timeline: one line per event on the screen, and the same facts as JSON.

Times are seconds since the demo began. On a terminal a last line shows the training progress.
"""

from __future__ import annotations

import shutil
import sys
import time
from typing import TextIO

import msgspec

from healthctl.rendering.blocks import escape_control_chars

SOURCES = {"demo": "36", "fault": "31;1", "remediator": "33", "trainer": "32", "slurm": "35", "check": "1"}
BAR = "▏▎▍▌▋▊▉█"
BAR_CELLS = 24


class TimelineEntry(msgspec.Struct, frozen=True, omit_defaults=True):
    """One event. `at_s`: since the beginning; `at`: UTC seconds; `kind` names it for programs."""

    at_s: float
    at: float
    source: str
    kind: str
    text: str
    node: str = ""
    injected: bool = False


class TrainingProgress(msgspec.Struct, frozen=True):
    """Training progress: the last finished step, the total, and the nodes."""

    step: int
    steps: int
    nodes: tuple[str, ...] = ()
    note: str = ""


class Timeline:
    """Collects events; prints them to `screen` if given."""

    def __init__(self, screen: TextIO | None) -> None:
        self.entries: list[TimelineEntry] = []
        self.began = time.time()
        self._screen = screen
        self._live = screen is not None and screen.isatty()
        self._shown = ""

    def add(
        self, source: str, kind: str, text: str, *, node: str = "", at: float | None = None, injected: bool = False
    ) -> None:
        """Add one event, which happened at `at` (UTC seconds; now if not given)."""
        when = time.time() if at is None else at
        entry = TimelineEntry(round(when - self.began, 3), when, source, kind, text, node, injected)
        self.entries.append(entry)
        self._print(self._line(entry))

    def headline(self, text: str) -> None:
        """Begin a chapter."""
        self._print("\n" + self._paint(text, "1"))

    def say(self, text: str = "") -> None:
        """Print a line that is not an event."""
        self._print(text)

    def progress(self, progress: TrainingProgress) -> None:
        """Redraw the last line, on a terminal."""
        if not self._live:
            return
        line = progress_line(progress, time.time() - self.began, shutil.get_terminal_size().columns - 1)
        if line != self._shown:
            self._write(f"\r\x1b[2K{line}")
            self._shown = line

    def end_progress(self) -> None:
        """Remove the last line."""
        if self._shown:
            self._write("\r\x1b[2K")
            self._shown = ""

    def verdict(self, name: str, detail: str, *, ok: bool) -> None:
        """The result of one check."""
        self._print(
            f"  {self._paint('✓' if ok else '✗', '32' if ok else '31;1')} {escape_control_chars(name)}: {escape_control_chars(detail)}"
        )

    def _line(self, entry: TimelineEntry) -> str:
        source = self._paint(f"{entry.source:<10}", SOURCES.get(entry.source, "0"))
        mark = self._paint("*", "31") if entry.injected else " "
        return f"{entry.at_s:7.2f} s {mark} {source}  {entry.node:<8}  {escape_control_chars(entry.text)}"

    def _paint(self, text: str, code: str) -> str:
        return f"\x1b[{code}m{text}\x1b[0m" if self._live else text

    def _print(self, line: str) -> None:
        shown = self._shown
        self.end_progress()
        self._write(line + "\n" + (shown if self._live else ""))
        self._shown = shown

    def _write(self, text: str) -> None:
        if self._screen is not None:
            self._screen.write(text)
            self._screen.flush()


def progress_line(progress: TrainingProgress, elapsed_s: float, width: int) -> str:
    """One line no wider than `width`: time, a bar, the step, the nodes."""
    share = min(1.0, max(0.0, (progress.step + 1) / progress.steps))
    eighths = round(share * BAR_CELLS * len(BAR))
    full, part = divmod(eighths, len(BAR))
    bar = ("█" * full + (BAR[part - 1] if part else "")).ljust(BAR_CELLS)
    where = f"  on {' '.join(progress.nodes)}" if progress.nodes else ""
    note = f"  {progress.note}" if progress.note else ""
    return f"{elapsed_s:7.2f} s  step {progress.step + 1:>3}/{progress.steps}  {bar}{where}{note}"[: max(width, 0)]


def choose_output_stream(*, quiet: bool) -> TextIO | None:
    """Standard output, or None if it is reserved for JSON."""
    return None if quiet else sys.stdout
