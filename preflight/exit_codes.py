"""How a command ends. 1 is what a machine is condemned by, so no trouble of ours may end with it: that ends with 3.

A signal ends with 128 and its number: 130, 143. Standard output and standard error may be full, closed, or without a reader.
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

NO_ANSWER = 3  # the exit code for "not known"; it is never good
UNWRITABLE = (OSError, ValueError)  # what a stream throws that is full, without a reader, or closed


@contextmanager
def guard_exit_code() -> Iterator[None]:
    """Whatever goes wrong inside ends with its exit code and one line on standard error. Only an exit that is asked for ends with 1.

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
    """A line on standard error, if anybody can hear it."""
    with suppress(*UNWRITABLE):
        click.echo(f"preflight: {text}", err=True)


@contextmanager
def _exit_on_signals(*signals: signal.Signals) -> Iterator[None]:
    """These signals end what runs as an exception does, so that it tidies up."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def end(number: int, _: FrameType | None) -> None:
        for each in signals:
            signal.signal(each, signal.SIG_IGN)  # it is being done
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
    """Nothing that is opened later may take the number of a standard stream that was closed."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # takes the lowest number that is free


def _discard_unwritable() -> None:
    """What a stream could not take, Python would try once more at the very end, and end with a code of its own."""
    for stream in (sys.stdout, sys.stderr):
        if not isinstance(stream, io.TextIOWrapper):
            continue  # closed from the beginning, or a test's
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
