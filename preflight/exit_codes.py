"""Exit codes of commands. 1 condemns a machine, so errors of preflight itself exit with 3.

Signals exit with 128 plus their number: 130, 143. Standard output and error may be full, closed, or without a reader.
"""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType, TracebackType

import click

NO_ANSWER = 3  # "unknown"; never treat it as healthy
UNWRITABLE = (OSError, ValueError)  # raised by a stream that is full, closed, or without a reader


@contextmanager
def guard_exit_code() -> Iterator[None]:
    """Turn any error into its exit code and one line on standard error. Only an explicit exit ends with 1.

    Raises:
        SystemExit: instead of any other exception.
    """
    _fill_closed_streams()
    try:
        with _exit_on_signals(signal.SIGTERM, signal.SIGHUP):
            yield
    except SystemExit as end:
        code = end.code
    except (KeyboardInterrupt, click.Abort):
        code = 128 + signal.SIGINT
    except click.exceptions.Exit as end:
        code = end.exit_code
    except click.ClickException as error:
        with suppress(*UNWRITABLE):
            error.show()
        code = NO_ANSWER if error.exit_code == 1 else error.exit_code
    except Exception as error:  # noqa: BLE001 - whatever it is, the machine has not failed by it
        print_note(
            f"no verdict: {type(error).__name__}: {' '.join(str(error).split())} ({_format_location(error.__traceback__)})"
        )
        code = NO_ANSWER
    else:
        code = 0
    _discard_unwritable()
    if code:
        raise SystemExit(code)


def print_note(text: str) -> None:
    """Print a line on standard error, if possible."""
    with suppress(*UNWRITABLE):
        click.echo(f"preflight: {text}", err=True)


@contextmanager
def _exit_on_signals(*signals: signal.Signals) -> Iterator[None]:
    """Make these signals raise SystemExit, so that cleanup runs."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)  # cleanup is running
        raise SystemExit(128 + number)

    before = {each: signal.getsignal(each) for each in signals}
    for each, handler in before.items():
        if handler is signal.SIG_DFL:
            signal.signal(each, end)
    try:
        yield
    finally:
        for each, handler in before.items():
            signal.signal(each, handler)


def _fill_closed_streams() -> None:
    """Occupy closed standard streams, so that later files do not get their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest free number


def _discard_unwritable() -> None:
    """Discard unwritable output: Python would retry at exit, and end with another exit code."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue  # closed from the start, or replaced by a test
        try:
            stream.flush()
        except UNWRITABLE:
            null = os.open(os.devnull, os.O_WRONLY)
            with suppress(*UNWRITABLE):
                os.dup2(null, stream.fileno())
            os.close(null)


def _format_location(trace: TracebackType | None) -> str:
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    return f"{os.path.basename(trace.tb_frame.f_code.co_filename)}:{trace.tb_lineno}" if trace else "nowhere"  # noqa: PTH119 - no path of ours
