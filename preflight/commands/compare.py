"""``compare``: two runs beside each other, or a run beside what many nodes reach."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from preflight.commands.report import documents
from preflight.report.columns import columns
from preflight.report.forms import Trouble
from preflight.report.wording import THE_NODE, clean, number, share

if TYPE_CHECKING:
    from preflight.expect.compare import Row

WORSE = 1


@click.command()
@click.argument("a")
@click.argument("b")
@click.option("--all", "every", is_flag=True, help="Also what differs by no more than measurements do.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", show_default=True)
def compare(a: str, b: str, every: bool, output: str) -> None:  # noqa: FBT001 - click passes by keyword
    """Compare two documents, A the earlier one or another node's, B the one that is looked at.

    Ends with 1 if B is worse somewhere, by more than devices scatter; else with 0.
    """
    from preflight.expect.compare import compare as compared  # noqa: PLC0415 - only this command compares

    before, now = documents([a, b])
    rows = compared(before, now)
    tell(rows, output=output, every=every, caution="another level" if before.level != now.level else "")


def tell(rows: Sequence[Row], *, output: str, every: bool, caution: str = "") -> None:
    """Print the rows, and end with 1 if B is worse somewhere.

    Raises:
        Trouble: they have nothing in common.
    """
    if not any(row.difference is not None for row in rows):
        raise Trouble("nothing to compare: no device, test and setting is in both")
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2))
    else:
        click.echo("\n".join(page(rows, caution, every=every)))
    sys.exit(WORSE if any(row.worse for row in rows) else 0)


def page(rows: Sequence[Row], caution: str, *, every: bool) -> list[str]:
    """What a person wants to see: how many are worse, and which."""
    both = [row for row in rows if row.difference is not None]
    worse = sum(row.worse for row in both)
    differ = sum(row.beyond for row in both)
    head = f"{len(both)} figures in both: {worse} worse, {differ - worse} otherwise changed"
    if alone := len(rows) - len(both):
        head += f"; {alone} in one only"
    shown = [row for row in rows if every or row.beyond]
    if caution:
        head += f" ({caution}: not the same run)"
    if not shown:
        return [head]
    shown.sort(key=lambda row: (not row.worse, not row.beyond))
    lines = [("device", "figure", "unit", "a", "b", "change", "scatter", ""), *map(_line, shown)]
    return [head, "", *columns(lines, right={3, 4, 5, 6})]


def _line(row: Row) -> tuple[str, ...]:
    setting = f" ({clean(row.setting)})" if row.setting else ""
    return (
        clean(row.device) or THE_NODE,
        f"{clean(row.test)} {clean(row.figure)}{setting}",
        clean(row.unit),
        "–" if row.a is None else number(row.a),
        "–" if row.b is None else number(row.b),
        "" if row.difference is None else share(row.difference),
        f"{row.spread * 100:.1f} %" if row.spread else "",
        "worse" if row.worse else "differs" if row.beyond else "",
    )
