"""``compare``: compares two runs, or a run with the fleet's typical figures."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click
import msgspec

from preflight.command_options import output_option
from preflight.commands.report_command import read_documents
from preflight.report.output_formats import FILE_OR_DASH, CommandError
from preflight.report.text_columns import align_columns
from preflight.report.value_format import THE_NODE, escape_text, format_margin, format_number
from vocabulary.text.plurals import format_count

if TYPE_CHECKING:
    from preflight.expectations.run_comparison import ComparisonRow, OutcomeChange
    from preflight.results import Document

WORSE = 1


@click.command(epilog="Example: healthctl preflight compare before.json after.json")
@click.argument("a", type=FILE_OR_DASH)
@click.argument("b", type=FILE_OR_DASH)
@click.option("--all", "every", is_flag=True, help="Also show differences within the usual spread.")
@output_option
def compare(a: str, b: str, every: bool, output: str) -> None:  # noqa: FBT001 - click passes by keyword
    """Compare two documents: A is the earlier one or another node's, B the one under test.

    Exits with 1 if B is worse: a worse outcome, a missing device, or a figure that is worse by more than the usual spread.
    """
    from preflight.expectations.run_comparison import compare_runs as compared  # noqa: PLC0415 - only this command compares
    from preflight.expectations.run_comparison import find_worse_outcomes  # noqa: PLC0415 - the same

    before, now = read_documents([a, b])
    heads = [f"{name}: {describe_run(document)}" for name, document in (("a", before), ("b", now))]
    heads += [f"the runs differ in: {', '.join(differing)}"] if (differing := list_run_differences(before, now)) else []
    print_comparison(compared(before, now), find_worse_outcomes(before, now), heads, output=output, every=every)


def describe_run(document: Document) -> str:
    """Identity and verdict of the run."""
    marks = f", injected: {', '.join(document.injected)}" if document.injected else ""
    partly = "" if document.complete else " (partial)"
    return escape_text(f"{document.node}, {document.verdict.value} at {document.level}{partly}{marks}")


def list_run_differences(before: Document, now: Document) -> list[str]:
    """Other differences between two runs, which may explain a figure."""
    told = {"node": (before.node, now.node), "level": (before.level, now.level)}
    names = sorted({*before.software, *now.software})
    told |= {name: (before.software.get(name, ""), now.software.get(name, "")) for name in names}
    return [f"{name} {escape_text(a) or '–'} and {escape_text(b) or '–'}" for name, (a, b) in told.items() if a != b]


def print_comparison(
    rows: Sequence[ComparisonRow], turned: Sequence[OutcomeChange], heads: Sequence[str], *, output: str, every: bool
) -> None:
    """Print the differences, and exit with 1 if B is worse.

    Raises:
        CommandError: the documents have nothing in common.
    """
    if not any(turn.test for turn in turned) and not any(row.difference is not None for row in rows):
        raise CommandError("nothing to compare: the runs share no device, test and setting")
    if output == "json":
        click.echo(
            msgspec.json.format(msgspec.json.encode({"about": heads, "turned": turned, "figures": rows}), indent=2)
        )
    else:
        click.echo("\n".join([*heads, *map(_format_outcome_change, turned), *summarise_rows(rows, every=every)]))
    sys.exit(WORSE if turned or any(row.worse for row in rows) else 0)


def _format_outcome_change(turned: OutcomeChange) -> str:
    what = " on ".join(filter(None, (turned.test, turned.device)))
    why = f": {turned.reason}" if turned.reason else ""
    return escape_text(f"worse: {what} was {turned.before}, is {turned.now}{why}")


def summarise_rows(rows: Sequence[ComparisonRow], *, every: bool) -> list[str]:
    """The rows to show: how many are worse, and which."""
    both = [row for row in rows if row.difference is not None]
    worse = sum(row.worse for row in both)
    differ = sum(row.beyond for row in both)
    head = f"{format_count(len(both), 'figure')} in both: {worse} worse, {differ - worse} otherwise changed"
    if alone := len(rows) - len(both):
        head += f"; {alone} in one only"
    shown = [row for row in rows if every or row.beyond]
    if not shown:
        return [head]
    shown.sort(key=lambda row: (not row.worse, not row.beyond))
    lines = [("device", "figure", "unit", "a", "b", "change", "scatter", ""), *map(_format_row, shown)]
    return [head, "", *align_columns(lines, right={3, 4, 5, 6})]


def _format_row(row: ComparisonRow) -> tuple[str, ...]:
    setting = f" ({escape_text(row.setting)})" if row.setting else ""
    return (
        escape_text(row.device) or THE_NODE,
        f"{escape_text(row.test)} {escape_text(row.figure)}{setting}",
        escape_text(row.unit),
        "–" if row.a is None else format_number(row.a),
        "–" if row.b is None else format_number(row.b),
        "" if row.difference is None else format_margin(row.difference),
        "" if row.spread is None else f"{row.spread * 100:.1f} %",
        "worse" if row.worse else "differs" if row.beyond else "",
    )
