"""Renders man pages from click's help: one page per top-level command, with its subcommands. Pure."""

from __future__ import annotations

from collections.abc import Iterator

import click

from healthctl.exit_codes import MEANINGS

SECTION = 1
_SPECIAL = {"\\": "\\e", "-": "\\-", "'": "\\(aq", "`": "\\(ga", "^": "\\(ha", "~": "\\(ti"}


def render_man_page(command: click.Command, ctx: click.Context, version: str) -> str:
    """Render the page of one command, or of healthctl itself, in man(7) format.

    `ctx` is the command's context; `version` is the installed version.
    """
    name = ctx.command_path.replace(" ", "-")
    lines = [
        f'.TH "{_escape_roff(name.upper())}" {SECTION} "" "{_escape_roff(f"gpu-healthd {version}")}" "User Commands"',
        ".SH NAME",
        f"{_escape_roff(name)} \\- {_escape_roff(command.get_short_help_str(limit=200).rstrip('.'))}",
        ".SH SYNOPSIS",
        f".B {_escape_roff(_format_usage(command, ctx))}",
        ".SH DESCRIPTION",
        *_render_paragraphs(command.help or ""),
    ]
    lines += _render_options(command, ctx, ".SH OPTIONS")
    if isinstance(command, click.Group):
        lines.append(".SH COMMANDS")
        lines += _render_command_index(command, ctx) if ctx.parent is None else _render_subcommands(command, ctx)
    if command.epilog and ctx.parent is not None:
        lines += [".SH NOTES", *_render_paragraphs(command.epilog)]
    lines += [".SH EXIT STATUS", "Unless stated otherwise above:"]
    for code, meaning in MEANINGS.items():
        lines += [".TP", f".B {int(code)}", _escape_roff(meaning)]
    if ctx.parent is not None:
        lines += [".SH SEE ALSO", f".BR healthctl ({SECTION})"]
    return "\n".join(lines) + "\n"


def _render_command_index(group: click.Group, ctx: click.Context) -> Iterator[str]:
    """One line per command; each has its own page."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is not None and not command.hidden:
            path = f"{ctx.command_path}-{name}"
            yield from (
                ".TP",
                f".BR {_escape_roff(path)} ({SECTION})",
                _escape_roff(command.get_short_help_str(limit=200)),
            )


def _render_subcommands(group: click.Group, ctx: click.Context) -> Iterator[str]:
    """Every command of a group, including nested groups."""
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if command is None or command.hidden:
            continue
        with click.Context(command, info_name=name, parent=ctx) as inner:
            yield f".SS {_escape_roff(_format_usage(command, inner))}"
            yield from _render_paragraphs(command.help or "")
            yield from _render_options(command, inner, "")
            if command.epilog:
                yield from (".PP", *_render_paragraphs(command.epilog))
            if isinstance(command, click.Group):
                yield from _render_subcommands(command, inner)


def _format_usage(command: click.Command, ctx: click.Context) -> str:
    return " ".join([ctx.command_path, *command.collect_usage_pieces(ctx)])


def _render_options(command: click.Command, ctx: click.Context, heading: str) -> Iterator[str]:
    records = [record for param in command.get_params(ctx) if (record := param.get_help_record(ctx)) is not None]
    if records and heading:
        yield heading
    for spelled, meaning in records:
        yield from (".TP", f".B {_escape_roff(spelled)}", _escape_roff(" ".join(meaning.split())) or "\\&")


def _render_paragraphs(text: str) -> Iterator[str]:
    r"""Paragraphs; one that begins with ``\b`` keeps its line breaks, as in click."""
    for number, paragraph in enumerate(text.strip().split("\n\n")):
        if number:
            yield ".PP"
        lines = [line.strip() for line in paragraph.strip().splitlines()]
        if lines and lines[0] == "\b":
            yield from (".nf", *(_escape_roff(line) for line in lines[1:]), ".fi")
        elif lines:
            yield _escape_roff(" ".join(lines))


def _escape_roff(text: str) -> str:
    """Escape one line for roff; non-ASCII letters become their code points."""
    line = "".join(_SPECIAL.get(c, c if c.isascii() else f"\\[u{ord(c):04X}]") for c in text.replace("\n", " "))
    return f"\\&{line}" if line.startswith(".") else line
