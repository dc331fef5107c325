"""``compare``: two runs beside each other, or a run beside what many nodes reach."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from preflight.commands.options import output_option
from preflight.commands.report import documents
from preflight.report.columns import columns
from preflight.report.forms import FILE_OR_DASH, Trouble
from preflight.report.wording import THE_NODE, clean, number, share
from vocabulary.counts import counted

if TYPE_CHECKING:
    from preflight.expect.compare import Row, Turn
    from preflight.results import Document

WORSE = 1


@click.command(epilog="Example: healthctl preflight compare before.json after.json")
@click.argument("a", type=FILE_OR_DASH)
@click.argument("b", type=FILE_OR_DASH)
@click.option("--all", "every", is_flag=True, help="Also what differs by no more than measurements do.")
@output_option
def compare(a: str, b: str, every: bool, output: str) -> None:  # noqa: FBT001 - click passes by keyword
    """Compare two documents, A the earlier one or another node's, B the one that is looked at.

    Ends with 1 if B is worse somewhere: a test that ended worse, a device that is gone, or a figure by more than devices scatter. Else with 0.
    """
    from preflight.expect.compare import compare as compared  # noqa: PLC0415 - only this command compares
    from preflight.expect.compare import turns  # noqa: PLC0415 - the same

    before, now = documents([a, b])
    heads = [f"{name}: {title(document)}" for name, document in (("a", before), ("b", now))]
    heads += [f"not alike: {', '.join(differing)}"] if (differing := unlike(before, now)) else []
    tell(compared(before, now), turns(before, now), heads, output=output, every=every)


def title(document: Document) -> str:
    """Which run this was, and what it said."""
    marks = f", injected: {', '.join(document.injected)}" if document.injected else ""
    partly = "" if document.complete else " in part"
    return clean(f"{document.node}, {document.verdict.value} at {document.level}{partly}{marks}")


def unlike(before: Document, now: Document) -> list[str]:
    """What else differs between two runs, and so may explain a figure."""
    told = {"node": (before.node, now.node), "level": (before.level, now.level)}
    names = sorted({*before.software, *now.software})
    told |= {name: (before.software.get(name, ""), now.software.get(name, "")) for name in names}
    return [f"{name} {clean(a) or '–'} and {clean(b) or '–'}" for name, (a, b) in told.items() if a != b]


def tell(rows: Sequence[Row], turned: Sequence[Turn], heads: Sequence[str], *, output: str, every: bool) -> None:
    """Print what changed, and end with 1 if B is worse somewhere.

    Raises:
        Trouble: they have nothing in common.
    """
    if not any(turn.test for turn in turned) and not any(row.difference is not None for row in rows):
        raise Trouble("nothing to compare: no device, test and setting is in both")
    if output == "json":
        click.echo(
            msgspec.json.format(msgspec.json.encode({"about": heads, "turned": turned, "figures": rows}), indent=2)
        )
    else:
        click.echo("\n".join([*heads, *map(_turn, turned), *page(rows, every=every)]))
    sys.exit(WORSE if turned or any(row.worse for row in rows) else 0)


def _turn(turned: Turn) -> str:
    what = " on ".join(filter(None, (turned.test, turned.device)))
    why = f": {turned.reason}" if turned.reason else ""
    return clean(f"worse: {what} was {turned.before}, is {turned.now}{why}")


def page(rows: Sequence[Row], *, every: bool) -> list[str]:
    """What a person wants to see: how many are worse, and which."""
    both = [row for row in rows if row.difference is not None]
    worse = sum(row.worse for row in both)
    differ = sum(row.beyond for row in both)
    head = f"{counted(len(both), 'figure')} in both: {worse} worse, {differ - worse} otherwise changed"
    if alone := len(rows) - len(both):
        head += f"; {alone} in one only"
    shown = [row for row in rows if every or row.beyond]
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
        "" if row.spread is None else f"{row.spread * 100:.1f} %",
        "worse" if row.worse else "differs" if row.beyond else "",
    )
