"""The commands of all four programs, from their help texts."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator

import click

from healthctl.main import cli
from healthd.main import main as healthd
from preflight.main import cli as preflight
from remediator.main import main as remediator
from tools.reference.markdown import code, head, joined, prose, table

PROGRAMS: tuple[tuple[str, click.Command], ...] = (
    ("healthctl", cli),
    ("healthd", healthd),
    ("remediator", remediator),
    ("preflight", preflight),
)
SHARED_BY_MIN = 5  # an option of at least so many commands is listed once per program
Record = tuple[str, str]  # spelling and meaning of an option
_LEFT_OUT = frozenset({"--help", "--version"})
ABOUT = (
    (
        "Generated from `--help`. Output has colours only on a terminal, and control characters in external text are escaped "
        "(`\\x1b`). An error is one line on standard error: what, where, what to do. See also [exit codes](exit-codes.md)."
    ),
    "`preflight` is `healthctl preflight`, or `python -m preflight` where `healthctl` is not installed.",
)


def page() -> str:
    """docs/reference/cli.md."""
    lines = head("Commands", *ABOUT)
    for name, program in PROGRAMS:
        found = [(path, each, context) for path, each, context in walk(name, program) if not _is_shown_elsewhere(path)]
        often = Counter(record for _, each, context in found for record in records(each, context))
        shared = frozenset(record for record, times in often.items() if times >= SHARED_BY_MIN)
        for path, each, context in found:
            lines += [f"## {name}" if each is program else f"### `{path}`", "", *described(each, context, shared)]
            if each is program and shared:
                rows = [[code(names), prose(meaning)] for names, meaning in sorted(shared)]
                lines += ["Common options:", "", *table(["option", "meaning"], rows)]
        if name == "healthctl":
            lines += ["### `healthctl preflight`", "", "Same as [preflight](#preflight).", ""]
    return joined(lines)


def _is_shown_elsewhere(path: str) -> bool:
    return path.startswith("healthctl preflight")


def walk(
    name: str, command: click.Command, parent: click.Context | None = None
) -> Iterator[tuple[str, click.Command, click.Context]]:
    """Yield a command and all its subcommands, each with its full path."""
    context = click.Context(command, info_name=name, parent=parent)
    yield context.command_path, command, context
    if isinstance(command, click.Group):
        for below in command.list_commands(context):
            found = command.get_command(context, below)
            if found is not None and not found.hidden:
                yield from walk(below, found, context)


def described(command: click.Command, context: click.Context, shared: frozenset[Record] = frozenset()) -> list[str]:
    """Description, usage and options of a command; shared options only by name."""
    usage = " ".join([context.command_path, *command.collect_usage_pieces(context)])
    lines = [*_help(command.help or ""), "```", usage, "```", ""]
    found = records(command, context)
    rows = [[code(names), prose(meaning)] for names, meaning in found if (names, meaning) not in shared]
    if rows:
        lines += table(["option", "meaning"], rows)
    also = [code(re.findall(r"--[\w-]+", names)[0]) for names, meaning in found if (names, meaning) in shared]
    if also:
        lines += [f"Common options: {', '.join(also)}.", ""]
    return [*lines, *_help(command.epilog or "")]


def records(command: click.Command, context: click.Context) -> list[Record]:
    """Options and arguments as in the help, each with its meaning; arguments without one are only in the usage."""
    found = [
        parameter.get_help_record(context) or ("", "")
        for parameter in command.get_params(context)
        if not _LEFT_OUT & set(parameter.opts)
    ]
    return [(names, meaning) for names, meaning in found if meaning]


def _help(text: str) -> list[str]:
    """Paragraphs as prose; a paragraph that click must not wrap becomes a code block."""
    lines: list[str] = []
    for paragraph in inspect.cleandoc(text).split("\f")[0].split("\n\n"):
        if paragraph.startswith("\b"):
            lines += ["```text", *paragraph.lstrip("\b\n").split("\n"), "```", ""]
        elif paragraph:
            lines += [prose(paragraph), ""]
    return lines
