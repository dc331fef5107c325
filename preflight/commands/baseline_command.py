"""``baseline``: learns typical figures of the fleet from documents, shows them, and compares a node with them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from preflight.command_options import output_option
from preflight.commands.compare_command import describe_run, print_comparison
from preflight.commands.report_command import read_documents
from preflight.report.output_formats import FILE_OR_DASH, CommandError
from preflight.report.text_columns import align_columns
from preflight.report.value_format import escape_text, format_number
from preflight.results import Document, Verdict
from vocabulary.clock import SystemClock
from vocabulary.text.plurals import format_count

if TYPE_CHECKING:
    from preflight.expectations.fleet_baseline import Baseline
    from preflight.expectations.run_comparison import OutcomeChange

folder_option = click.option(
    "--baseline",
    "at",
    type=click.Path(file_okay=False, path_type=Path),
    help="Folder of the baseline.  [default: HEALTHD_PREFLIGHT_BASELINE, or /var/lib/gpu-healthd/preflight]",
)


class LevelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One listed measurement. `usual` is None while too few nodes contributed."""

    product: str
    test: str
    figure: str
    setting: str
    unit: str
    software: str
    usual: float | None
    spread: float | None
    nodes: int


@click.group(
    epilog="Examples: healthctl preflight baseline learn nodes/*.json; healthctl preflight baseline check result.json"
)
def baseline() -> None:
    """Learn and show the typical figures of a cluster, and compare a node with them."""


@baseline.command(epilog="Example: healthctl preflight baseline learn nodes/*.json")
@click.argument("files", nargs=-1, required=True, metavar="FILE...|-", type=FILE_OR_DASH)
@folder_option
@click.option("--accept", is_flag=True, help="Move levels to the nodes' current values without limit.")
def learn(files: tuple[str, ...], at: Path | None, accept: bool) -> None:  # noqa: FBT001 - click passes by keyword
    """Add the documents in these files to the baseline.

    Only full passes without injected faults count; other documents are named. A failure removes earlier data of its node.
    Exits with 3 if nothing was learned.
    """
    from preflight import baseline_files  # noqa: PLC0415 - only this command
    from preflight.expectations.baseline_learning import (  # noqa: PLC0415 - only this command
        explain_outdated,
        explain_refusal,
        list_held_levels,
        list_moved_levels,
    )
    from preflight.expectations.baseline_learning import learn_baseline as learned  # noqa: PLC0415 - only this command
    from preflight.expectations.fleet_baseline import Baseline  # noqa: PLC0415 - only this command

    now = SystemClock().wall()
    found = _read_documents(files)
    kept = baseline_files.resolve_baseline_folder(at)
    path = kept / baseline_files.BASELINE
    taught = [document for _, document in found if not explain_refusal(document, now)]
    old = new = Baseline()
    if taught or path.exists():
        old, new = _update_baseline(
            kept, lambda was: learned([document for _, document in found], was, now=now, accept=accept)
        )
    for name, document in found:
        if why := explain_refusal(document, now) or explain_outdated(new, document):
            click.echo(f"{escape_text(name)} was not learned: {escape_text(why)}", err=True)
    for node in sorted(_list_nodes(old) - _list_nodes(new)):
        click.echo(f"{escape_text(node)} was removed: it failed since, or has another name now", err=True)
    taught = [document for document in taught if not explain_outdated(new, document)]
    if not taught:
        was = "unchanged" if new == old else "now without the failed nodes"
        raise CommandError(f"nothing was learned: {format_count(len(files), 'document')}, none usable; {path} is {was}")
    nodes = {document.node for document in taught} & new.machines.keys()
    click.echo(
        f"{path}: learned {format_count(len(taught), 'document')} of {format_count(len(nodes), 'node')}; the baseline has {format_count(len(new.entries), 'figure')}"
    )
    for sentence in list_moved_levels(old, new) if accept else ():
        click.echo(f"accepted: {escape_text(sentence)}")
    for sentence in list_held_levels(new):
        click.echo(f"held back: {escape_text(sentence)}")


@baseline.command(epilog="Example: healthctl preflight baseline forget gpu-7")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@folder_option
def forget(nodes: tuple[str, ...], at: Path | None) -> None:
    """Remove the data of these nodes. They may contribute again.

    Exits with 3 if one is unknown; the others are removed.
    """
    from preflight import baseline_files  # noqa: PLC0415 - only this command
    from preflight.expectations.baseline_learning import forget_node  # noqa: PLC0415 - only this command

    path = baseline_files.resolve_baseline_folder(at) / baseline_files.BASELINE
    known = _read_baseline(at).machines.keys() | _list_nodes(_read_baseline(at))
    if known & set(nodes):
        _, new = _update_baseline(path.parent, lambda was: functools.reduce(forget_node, nodes, was))
        click.echo(
            f"{path}: forgot {', '.join(map(escape_text, sorted(known & set(nodes))))}; {format_count(len(_list_nodes(new)), 'node')} remain"
        )
    if unknown := sorted(set(nodes) - known):
        raise CommandError(f"{path}: no data of node {', '.join(unknown)}; the file lists the known nodes")


@baseline.command(epilog="Example: healthctl preflight baseline show")
@folder_option
@output_option
def show(at: Path | None, output: str) -> None:
    """List each figure with its typical value, spread and number of nodes."""
    from preflight.expectations.baseline_learning import list_held_levels  # noqa: PLC0415 - only this command
    from preflight.expectations.fleet_baseline import NODES_MIN, compute_level  # noqa: PLC0415 - only this command

    known = _read_baseline(at)
    rows = []
    for entry in known.entries:
        reached = compute_level(entry)
        rows.append(
            LevelRow(
                product=entry.product,
                test=entry.test,
                figure=entry.figure,
                setting=entry.setting,
                unit=entry.unit,
                software=entry.software,
                usual=reached.usual if reached else None,
                spread=reached.spread if reached else None,
                nodes=len(entry.nodes),
            )
        )
    if output == "json":
        click.echo(msgspec.json.format(msgspec.json.encode(rows), indent=2))
        return
    if not rows:
        click.echo("no baseline yet: pass documents of passed runs to 'baseline learn'")
        return
    lines = [("product", "figure", "usual", "unit", "scatter", "nodes", "software"), *map(_format_level_row, rows)]
    click.echo("\n".join(align_columns(lines, right={2, 4, 5})))
    if any(row.usual is None for row in rows):
        click.echo(f"\n–: no level yet, needs at least {NODES_MIN} nodes")
    for sentence in list_held_levels(known):
        click.echo(f"held back: {escape_text(sentence)}")


@baseline.command(epilog="Example: healthctl preflight baseline check result.json")
@click.argument("file", metavar="FILE|-", type=FILE_OR_DASH)
@folder_option
@click.option("--all", "every", is_flag=True, help="Also show differences within the usual spread.")
@output_option
def check(file: str, at: Path | None, every: bool, output: str) -> None:  # noqa: FBT001 - click passes by keyword
    """Compare a document with the baseline. A is the typical value of other nodes, B this document.

    Exits with 1 if a figure is worse by more than the usual spread; with 3 if the baseline has no matching data.
    """
    from preflight.expectations.run_comparison import compare_runs  # noqa: PLC0415 - only this command

    (document,) = read_documents([file])
    turned = () if document.verdict is Verdict.PASS else (_build_not_passed_change(document),)
    print_comparison(
        compare_runs(_read_baseline(at), document), turned, [f"b: {describe_run(document)}"], output=output, every=every
    )


def _build_not_passed_change(document: Document) -> OutcomeChange:
    from preflight.expectations.run_comparison import OutcomeChange  # noqa: PLC0415 - only check

    return OutcomeChange(
        test="the run", device="", before="to pass", now=document.verdict.value, reason=document.reason
    )


def _read_documents(files: Sequence[str]) -> list[tuple[str, Document]]:
    """The documents with their file names. Invalid files are named and skipped."""
    found = []
    for name in files:
        try:
            found += [(name, document) for document in read_documents([name])]
        except CommandError as trouble:
            click.echo(f"not learned: {escape_text(trouble.message)}", err=True)
    return found


def _update_baseline(kept: Path, change: Callable[[Baseline], Baseline]) -> tuple[Baseline, Baseline]:
    from preflight import baseline_files  # noqa: PLC0415 - only these commands

    try:
        return baseline_files.update_baseline(kept, change)
    except baseline_files.BaselineError as error:
        raise CommandError(str(error)) from None


def _list_nodes(known: Baseline) -> set[str]:
    return {name for entry in known.entries for name in entry.nodes}


def _read_baseline(at: Path | None) -> Baseline:
    from preflight import baseline_files  # noqa: PLC0415 - only these commands

    try:
        return baseline_files.read_baseline(baseline_files.resolve_baseline_folder(at) / baseline_files.BASELINE)
    except baseline_files.BaselineError as error:
        raise CommandError(str(error)) from None


def _format_level_row(row: LevelRow) -> tuple[str, ...]:
    setting = f" ({escape_text(row.setting)})" if row.setting else ""
    return (
        escape_text(row.product),
        f"{escape_text(row.test)} {escape_text(row.figure)}{setting}",
        "–" if row.usual is None else format_number(row.usual),
        escape_text(row.unit),
        "–" if row.spread is None else f"{row.spread * 100:.1f} %",
        str(row.nodes),
        escape_text(row.software),
    )
