"""`healthctl man`: man pages, generated from the ``--help`` texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import click

from healthctl.exit_codes import Exit, Failure
from vocabulary.text.plurals import format_count


@click.command(epilog="Examples: healthctl man nodes | man -l -; healthctl man --dir /usr/local/share/man/man1")
@click.argument("command", required=False)
@click.option(
    "--dir", "directory", type=click.Path(file_okay=False, path_type=Path), help="Write all pages to this directory."
)
@click.pass_context
def man(ctx: click.Context, command: str | None, directory: Path | None) -> None:
    """Print the man page of COMMAND, or of healthctl itself; or write all pages to a directory."""
    root = ctx.find_root()
    if directory is None:
        click.echo(next(text for _, text in _render_man_pages(root, command or "")), nl=False)
        return
    written = 0
    try:
        directory.mkdir(parents=True, exist_ok=True)
        for name, text in _render_man_pages(root, command):
            (directory / f"{name}.1").write_text(text)
            written += 1
    except OSError as error:
        raise Failure(f"{error.filename}: cannot be written: {error.strerror}") from None
    click.echo(f"{directory}: {format_count(written, 'page')}", err=True)


def _render_man_pages(root: click.Context, wanted: str | None) -> Iterator[tuple[str, str]]:
    """File name and text. `wanted`: one command, empty for healthctl itself, None for all."""
    from healthctl.cli.man_pages import render_man_page
    from vocabulary import VERSION

    front = root.command
    assert isinstance(front, click.Group)  # noqa: S101 - the front door is one
    names = front.list_commands(root)
    if wanted and wanted not in names:
        from difflib import get_close_matches

        near = get_close_matches(wanted, names, 1)
        todo = f"did you mean '{near[0]}'?" if near else "'healthctl --help' lists them"
        raise Failure(f"no such command '{wanted}'; {todo}", Exit.USAGE)
    if not wanted:
        yield "healthctl", render_man_page(front, root, VERSION)
    for name in names if wanted is None else [wanted] * bool(wanted):
        command = front.get_command(root, name)
        if command is not None and not command.hidden:
            with click.Context(command, info_name=name, parent=root) as ctx:
                yield f"healthctl-{name}", render_man_page(command, ctx, VERSION)
