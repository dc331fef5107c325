"""How a command ends: the exit codes (also in ``docs/reference/cli.md``), and an error as one line."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import IO, Any

import click


class Exit(enum.IntEnum):
    """What a script may rely on."""

    OK = 0
    PROBLEM = 1  # asked and answered: something is wrong
    USAGE = 2
    UNKNOWN = 3  # no answer, refused, or not known: never read it as good
    INTERRUPTED = 130
    NO_READER = 141


MEANINGS = {
    Exit.OK: "done, or good",
    Exit.PROBLEM: "asked and answered: a problem was found",
    Exit.USAGE: "wrong usage: an unknown option, a value that is none, a yes that nobody could be asked for",
    Exit.UNKNOWN: "no answer, refused, not found, not known, or no server or token to ask with; never read it as good",
    Exit.INTERRUPTED: "Ctrl-C; where that is how it ends (--watch, --follow, up, nvhcd), the code is 0",
    Exit.NO_READER: "whoever read the output is gone, as in 'healthctl events | head'; nothing is said (SIGPIPE)",
}


class Failure(click.ClickException):
    """An error for people, in one line: what, where, and what to do."""

    def __init__(self, message: str, code: Exit = Exit.UNKNOWN) -> None:
        super().__init__(message)
        self.exit_code = int(code)  # type: ignore[misc]  # click declares it per class, reads it per instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on standard error, made safe for a terminal."""
        from healthctl.rendering.blocks import escape_control_chars

        click.echo(f"healthctl: {escape_control_chars(self.message)}", file=file, err=True)


@contextlib.contextmanager
def require_extra(name: str) -> Iterator[None]:
    """Around imports that only an optional part of the package brings: what is missing is said in one line."""
    try:
        yield
    except ModuleNotFoundError as error:
        todo = f"install it: pip install 'gpu-healthd[{name}]'"
        raise Failure(f"this needs the module {error.name}, which is not here; {todo}") from error
