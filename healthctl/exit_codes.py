"""Exit codes of commands (also in ``docs/reference/cli.md``), and errors as one line."""

from __future__ import annotations

import contextlib
import enum
from collections.abc import Iterator
from typing import IO, Any

import click


class Exit(enum.IntEnum):
    """The exit codes that scripts may rely on."""

    OK = 0
    PROBLEM = 1  # the request succeeded, and found a problem
    USAGE = 2
    UNKNOWN = 3  # no response, refused, or unknown; never treat it as healthy
    INTERRUPTED = 130
    NO_READER = 141


MEANINGS = {
    Exit.OK: "success, or healthy",
    Exit.PROBLEM: "the request succeeded and found a problem",
    Exit.USAGE: "wrong usage: an unknown option, an invalid value, or no terminal for the confirmation",
    Exit.UNKNOWN: "no response, refused, not found, unknown, or no server or token given; never treat it as healthy",
    Exit.INTERRUPTED: "Ctrl-C; 0 for commands that run until stopped (--watch, --follow, up, nvhcd)",
    Exit.NO_READER: "the reader of the output closed the pipe, as in 'healthctl events | head' (SIGPIPE)",
}


class Failure(click.ClickException):
    """An error for people, in one line: what, where, and what to do."""

    def __init__(self, message: str, code: Exit = Exit.UNKNOWN) -> None:
        super().__init__(message)
        self.exit_code = int(code)  # type: ignore[misc]  # click declares it per class, reads it per instance

    def show(self, file: IO[Any] | None = None) -> None:
        """Print it on standard error, escaped for a terminal."""
        from healthctl.rendering.blocks import escape_control_chars

        click.echo(f"healthctl: {escape_control_chars(self.message)}", file=file, err=True)


@contextlib.contextmanager
def require_extra(name: str) -> Iterator[None]:
    """Context manager for imports from an optional extra; a missing module becomes a one-line error."""
    try:
        yield
    except ModuleNotFoundError as error:
        todo = f"install it: pip install 'gpu-healthd[{name}]'"
        raise Failure(f"this needs the module {error.name}, which is not installed; {todo}") from error
