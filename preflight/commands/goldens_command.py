"""``goldens``: records digests that several devices agree on, as a reference for single devices."""

from __future__ import annotations

import sys
from pathlib import Path

import click

from preflight.commands.report_command import read_documents
from preflight.device_comparison.golden_recorder import DEVICES_MIN, record_goldens
from preflight.kernels import golden_digests as kept
from preflight.report.output_formats import FILE_OR_DASH, CommandError
from preflight.report.text_columns import align_columns
from preflight.report.value_format import escape_text

NOTHING = 3
file_option = click.option(
    "--goldens",
    "at",
    type=click.Path(dir_okay=False, path_type=Path),
    help=f"File of the golden digests.  [default: {kept.SITE_VARIABLE}, or {kept.SITE_FILE}]",
)


@click.group(epilog="Example: healthctl preflight goldens record nodes/*.json")
def goldens() -> None:
    """Record and show golden digests of arithmetic, on which several devices agree."""


@goldens.command("record", epilog="Example: healthctl preflight goldens record nodes/*.json")
@click.argument("files", nargs=-1, required=True, metavar="FILE...|-", type=FILE_OR_DASH)
@file_option
@click.option(
    "--devices",
    default=DEVICES_MIN,
    show_default=True,
    type=click.IntRange(min=2),
    help="Number of devices that must agree.",
)
@click.option("--replace", is_flag=True, help="Replace recorded digests that contradict.")
def record_command(files: tuple[str, ...], at: Path | None, devices: int, replace: bool) -> None:  # noqa: FBT001 - click passes by keyword
    """Record the digests on which the devices in these documents agree.

    Only passes without injected faults count, and only of nodes without a contradicting document. Exits with 3 if nothing was
    recorded or confirmed.
    """
    path = at or kept.resolve_site_file()
    found = record_goldens(read_documents(files), _read_goldens(path), devices_min=devices, replace=replace)
    for why in found.refused:
        click.echo(f"not recorded: {escape_text(why)}", err=True)
    if found.new:
        try:
            kept.write_goldens(path, found.goldens)
        except OSError as error:
            raise CommandError(
                f"{path}: cannot be written: {error.strerror or error}; choose another file with --goldens"
            ) from None
    click.echo(f"{found.new} recorded, {found.confirmed} confirmed, in {path}")
    sys.exit(0 if found.new or found.confirmed else NOTHING)


@goldens.command(epilog="Example: healthctl preflight goldens show")
@file_option
def show(at: Path | None) -> None:
    """List the platforms with golden digests, and their number."""
    path = at or kept.resolve_site_file()
    rows = [[str(len(works)), escape_text(platform)] for platform, works in sorted(_read_goldens(path).items())]
    if not rows:
        click.echo(f"{path}: no goldens yet; record some from documents of nodes that passed")
        return
    click.echo("\n".join(align_columns([["works", "platform"], *rows])))


def _read_goldens(path: Path) -> kept.Goldens:
    if not path.exists():
        return {}
    try:
        return kept.read_goldens(path)
    except ValueError as error:
        raise CommandError(str(error)) from None
