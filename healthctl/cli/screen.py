"""Displays a command's result as a table or a document, once or repeatedly, with one set of options.

    @command
    @view_options
    @server_options
    def lemons(server: Server, screen: Screen) -> None:
        found = server.get("/v1/lemons", LemonList)
        screen.show(found, lambda: [Rows(found.lemons, COLUMNS, empty="no node is suspected")])

A command that found a problem sets `screen.code`.
"""

from __future__ import annotations

import enum
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from functools import wraps
from typing import Any

import click

from healthctl.api_client.remediator_client import ServerUnreachable
from healthctl.exit_codes import Exit
from healthctl.rendering.blocks import (
    Block,
    escape_control_chars,
    format_json,
    format_timestamp,
    format_yaml,
    render_plain,
)

WATCH_S = 2.0
WATCH_S_MIN, WATCH_S_MAX = 0.2, 3600.0


class OutputFormat(enum.Enum):
    """Values of ``--output``."""

    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    YAML = "yaml"


class Screen:
    """Where a command displays its result. `code` is the exit code."""

    def __init__(
        self, form: OutputFormat = OutputFormat.TABLE, *, color: bool = True, terminal: bool | None = None
    ) -> None:
        self.form = form
        self.code = Exit.OK
        self._color = color and not os.environ.get("NO_COLOR")
        self.is_terminal = _is_terminal() if terminal is None else terminal

    @property
    def is_document(self) -> bool:
        """Whether a program reads the output; then standard output holds only the document."""
        return self.form in (OutputFormat.JSON, OutputFormat.YAML)

    def show(self, document: object, page: Callable[[], Iterable[Block]]) -> None:
        """Show `document`, a view or plain data, to programs; or `page`, the same in blocks, to people."""
        self._write(self._text(document, page))

    def say(self, text: str) -> None:
        """Print a sentence for people, escaped; on standard error if standard output is a document."""
        click.echo(escape_control_chars(text), err=self.is_document)

    def _text(self, document: object, page: Callable[[], Iterable[Block]]) -> str:
        if self.form is OutputFormat.JSON:
            return format_json(document)
        if self.form is OutputFormat.YAML:
            return f"---\n{format_yaml(document)}"
        wide = self.form is OutputFormat.WIDE
        if self.is_terminal:
            try:
                from healthctl.rendering.terminal import render_terminal
            except ModuleNotFoundError:  # optional: pip install 'gpu-healthd[terminal]'
                return render_plain(page(), wide=wide)
            return render_terminal(page(), wide=wide, color=self._color)
        return render_plain(page(), wide=wide)

    def _write(self, text: str) -> None:
        click.echo(text, color=True)
        sys.stdout.flush()


class RefreshingScreen(Screen):
    """Repeats the display every `every_s` seconds: in place on a terminal, else one below the other."""

    def __init__(self, form: OutputFormat, *, color: bool, every_s: float) -> None:
        super().__init__(form, color=color)
        self._every_s = every_s
        self._last = ""  # the last output, with its time

    def repeat(self, draw: Callable[[], object]) -> None:
        """Redraw until Ctrl-C, which exits with 0; an outage is reported and retried."""
        signal.signal(signal.SIGINT, lambda *_: os._exit(Exit.OK))
        while True:
            try:
                draw()
            except ServerUnreachable as trouble:
                self._say_trouble(trouble)
            time.sleep(self._every_s)

    def _say_trouble(self, trouble: ServerUnreachable) -> None:
        """Print the error; on a terminal above the last known output."""
        words = f"{escape_control_chars(trouble.message)}; retrying every {self._every_s:g} s"
        if self._in_place:
            since = f"\n\nas of {self._last}" if self._last else ""
            self._draw(f"! {format_timestamp(time.time())}: {words}{since}")
        else:
            click.echo(f"healthctl: {format_timestamp(time.time())}: {words}", err=True)

    def _write(self, text: str) -> None:
        if self._in_place:
            self._last = f"{format_timestamp(time.time())}, every {self._every_s:g} s\n\n{text}"
            self._draw(self._last)
        else:
            super()._write(text)

    @property
    def _in_place(self) -> bool:
        return self.is_terminal and not self.is_document

    def _draw(self, text: str) -> None:
        click.echo(overwrite_screen(text), nl=False, color=True)
        sys.stdout.flush()


def overwrite_screen(text: str) -> str:
    """Escape sequences that replace a terminal's content by `text`; lines that do not fit are counted."""
    import shutil

    height = shutil.get_terminal_size().lines
    lines = text.split("\n")
    if len(lines) > height - 1:
        lines = [*lines[: height - 2], f"… {len(lines) - height + 2} more lines"]
    return "\x1b[H" + "".join(f"{line}\x1b[0m\x1b[K\n" for line in lines) + "\x1b[J"


_OUTPUT = click.option(
    "-o",
    "--output",
    type=click.Choice([form.value for form in OutputFormat]),
    default=OutputFormat.TABLE.value,
    show_default=True,
    help="Output format: table or wide for people, json or yaml for programs.",
)
_NO_COLOR = click.option("--no-color", is_flag=True, help="Disable colours. NO_COLOR in the environment does the same.")
_WATCH = click.option(
    "-w",
    "--watch",
    "every_s",
    is_flag=False,
    flag_value=WATCH_S,
    type=click.FloatRange(WATCH_S_MIN, WATCH_S_MAX),
    metavar="[SECONDS]",
    help=f"Refresh until Ctrl-C.  [every {WATCH_S:g} s]",
)


def output_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add ``--output`` and ``--no-color`` to a command, which receives a `Screen` as its argument ``screen``."""

    @_OUTPUT
    @_NO_COLOR
    @wraps(command)
    def with_screen(*args: Any, output: str, no_color: bool, **kwargs: Any) -> None:
        _run_once(command, Screen(OutputFormat(output), color=not no_color), *args, **kwargs)

    return with_screen


def view_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same with ``--watch``, for data that changes. Put it above `server_options`: each refresh sends a new request."""

    @_OUTPUT
    @_WATCH
    @_NO_COLOR
    @wraps(command)
    def with_screen(*args: Any, output: str, every_s: float | None, no_color: bool, **kwargs: Any) -> None:
        if every_s is None:
            _run_once(command, Screen(OutputFormat(output), color=not no_color), *args, **kwargs)
            return
        screen = RefreshingScreen(OutputFormat(output), color=not no_color, every_s=every_s)
        screen.repeat(lambda: command(*args, screen=screen, **kwargs))

    return with_screen


def _run_once(command: Callable[..., Any], screen: Screen, *args: Any, **kwargs: Any) -> None:
    command(*args, screen=screen, **kwargs)
    if screen.code is not Exit.OK:
        raise SystemExit(screen.code)


def _is_terminal() -> bool:
    return sys.stdout.isatty() and os.environ.get("TERM", "") not in ("", "dumb")
