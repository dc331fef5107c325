"""Progress of a run on standard error: a line per test and result, or a bar on a terminal. Write errors are ignored."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Protocol

import click

from preflight.exit_codes import UNWRITABLE, print_note
from preflight.results import Outcome, Result

_NEWS = (Outcome.FAIL, Outcome.HANG, Outcome.ERROR, Outcome.NOT_RUN)


class Progress(Protocol):
    """Receives the progress of a run."""

    def begins(self, test: str) -> None:
        """A test begins."""

    def ended(self, results: tuple[Result, ...]) -> None:
        """A test has ended on all devices."""


class SilentProgress:
    """Prints nothing."""

    def begins(self, test: str) -> None:
        """Does nothing."""

    def ended(self, results: tuple[Result, ...]) -> None:
        """Does nothing."""


class LineProgress:
    """For logs: separate lines, each with the program's name."""

    def begins(self, test: str) -> None:
        """One line."""
        self._say(f"{test:<18} begins")

    def ended(self, results: tuple[Result, ...]) -> None:
        """One line per result."""
        for result in results:
            self._say(format_result_line(result))

    def _say(self, text: str) -> None:
        print_note(text)


class BarProgress:
    """For a terminal: a bar of the round's tests, and lines only for results that are not a pass."""

    def __init__(self, length: int) -> None:
        self._length = length
        self._bar = self._new()

    def begins(self, test: str) -> None:
        """Show the test in the bar. A further round starts a new one."""
        if self._bar.finished:
            self._bar = self._new()
        self._bar.label = f"{test:<18}"
        with suppress(*UNWRITABLE):
            self._bar.render_progress()

    def ended(self, results: tuple[Result, ...]) -> None:
        """Advance the bar; print results that are not a pass."""
        with suppress(*UNWRITABLE):
            for result in results:
                if result.outcome in _NEWS:
                    click.echo(f"\r\x1b[K{format_result_line(result)}", err=True)
            self._bar.update(1)

    def close(self) -> None:
        """Clear the line for later output."""
        with suppress(*UNWRITABLE):
            self._bar.render_finish()

    def _new(self) -> click._termui_impl.ProgressBar[int]:
        return click.progressbar(length=self._length, file=sys.stderr, show_eta=False)


@contextmanager
def open_progress(tests: int) -> Iterator[Progress]:
    """The form that suits standard error."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield LineProgress()
        return
    bar = BarProgress(tests)
    try:
        yield bar
    finally:
        bar.close()


def format_result_line(result: Result) -> str:
    """A result in one line, escaped for a terminal."""
    text = f"{result.test:<18} {result.outcome.value:<15} {result.device:<8} {result.reason}".rstrip()
    return "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
