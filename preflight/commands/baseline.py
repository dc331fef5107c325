"""``baseline``: what many nodes reach, learned from their documents; shown; and one node held against it."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from preflight.commands.compare import tell, title
from preflight.commands.options import output_option
from preflight.commands.report import documents
from preflight.report.columns import columns
from preflight.report.forms import FILE_OR_DASH, Trouble
from preflight.report.wording import clean, number
from preflight.results import Document, Verdict
from vocabulary.clock import SystemClock
from vocabulary.counts import counted

if TYPE_CHECKING:
    from preflight.expect.compare import Turn
    from preflight.expect.fleet import Baseline

folder_option = click.option(
    "--baseline",
    "at",
    type=click.Path(file_okay=False, path_type=Path),
    help="The folder it is kept in.  [default: HEALTHD_PREFLIGHT_BASELINE, or /var/lib/gpu-healthd/preflight]",
)


class LevelRow(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement as it is listed. `usual` is None while too few nodes have taught it."""

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
    """Learn what the nodes of a cluster reach, see it, and hold a node against it."""


@baseline.command(epilog="Example: healthctl preflight baseline learn nodes/*.json")
@click.argument("files", nargs=-1, required=True, metavar="FILE...|-", type=FILE_OR_DASH)
@folder_option
@click.option("--accept", is_flag=True, help="Let levels go to where the nodes are now, however far that is.")
def learn(files: tuple[str, ...], at: Path | None, accept: bool) -> None:  # noqa: FBT001 - click passes by keyword
    """Teach the baseline the documents in these files.

    Only a whole pass with nothing injected teaches; what does not is named. A failure takes out what its node taught before.
    Ends with 3 if nothing was learned.
    """
    from preflight import baselines  # noqa: PLC0415 - only this command
    from preflight.expect.fleet import Baseline  # noqa: PLC0415 - likewise
    from preflight.expect.learning import held, moved, outdated, refusal  # noqa: PLC0415 - likewise
    from preflight.expect.learning import learn as learned  # noqa: PLC0415 - likewise

    now = SystemClock().wall()
    found = _readable(files)
    kept = baselines.folder(at)
    path = kept / baselines.BASELINE
    taught = [document for _, document in found if not refusal(document, now)]
    old = new = Baseline()
    if taught or path.exists():
        old, new = _changed(kept, lambda was: learned([document for _, document in found], was, now=now, accept=accept))
    for name, document in found:
        if why := refusal(document, now) or outdated(new, document):
            click.echo(f"{clean(name)} teaches nothing: {clean(why)}", err=True)
    for node in sorted(_nodes(old) - _nodes(new)):
        click.echo(f"{clean(node)} is taken out: it failed since, or goes by another name", err=True)
    taught = [document for document in taught if not outdated(new, document)]
    if not taught:
        was = "as it was" if new == old else "without those who failed"
        raise Trouble(f"nothing was learned: {counted(len(files), 'document')}, none that teaches; {path} is {was}")
    nodes = {document.node for document in taught} & new.machines.keys()
    click.echo(
        f"{path}: learned {counted(len(taught), 'document')} of {counted(len(nodes), 'node')}; it knows {counted(len(new.entries), 'figure')}"
    )
    for sentence in moved(old, new) if accept else ():
        click.echo(f"accepted: {clean(sentence)}")
    for sentence in held(new):
        click.echo(f"held back: {clean(sentence)}")


@baseline.command(epilog="Example: healthctl preflight baseline forget gpu-7")
@click.argument("nodes", nargs=-1, required=True, metavar="NODE...")
@folder_option
def forget(nodes: tuple[str, ...], at: Path | None) -> None:
    """Take out what these nodes taught, as one that is found bad later. They may teach again.

    Ends with 3 if one is not known; the others are forgotten.
    """
    from preflight import baselines  # noqa: PLC0415 - only this command
    from preflight.expect.learning import forgotten  # noqa: PLC0415 - likewise

    path = baselines.folder(at) / baselines.BASELINE
    known = _known(at).machines.keys() | _nodes(_known(at))
    if known & set(nodes):
        _, new = _changed(path.parent, lambda was: functools.reduce(forgotten, nodes, was))
        click.echo(
            f"{path}: forgot {', '.join(map(clean, sorted(known & set(nodes))))}; {counted(len(_nodes(new)), 'node')} stay"
        )
    if unknown := sorted(set(nodes) - known):
        raise Trouble(f"{path}: no node {', '.join(unknown)} has taught it; the file lists who has")


@baseline.command(epilog="Example: healthctl preflight baseline show")
@folder_option
@output_option
def show(at: Path | None, output: str) -> None:
    """List what the baseline says. The usual value of each figure, its scatter, and how many nodes taught it."""
    from preflight.expect.fleet import NODES_MIN, level  # noqa: PLC0415 - only this command
    from preflight.expect.learning import held  # noqa: PLC0415 - likewise

    known = _known(at)
    rows = []
    for entry in known.entries:
        reached = level(entry)
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
        click.echo("nothing is learned yet: give documents of passed runs to 'baseline learn'")
        return
    lines = [("product", "figure", "usual", "unit", "scatter", "nodes", "software"), *map(_line, rows)]
    click.echo("\n".join(columns(lines, right={2, 4, 5})))
    if any(row.usual is None for row in rows):
        click.echo(f"\n–: no level yet, it takes {NODES_MIN} nodes")
    for sentence in held(known):
        click.echo(f"held back: {clean(sentence)}")


@baseline.command(epilog="Example: healthctl preflight baseline check result.json")
@click.argument("file", metavar="FILE|-", type=FILE_OR_DASH)
@folder_option
@click.option("--all", "every", is_flag=True, help="Also what differs by no more than good devices do.")
@output_option
def check(file: str, at: Path | None, every: bool, output: str) -> None:  # noqa: FBT001 - click passes by keyword
    """Hold a document against the baseline. A is what nodes usually reach, B this document.

    Ends with 1 if it is worse somewhere, by more than devices scatter; with 3 if the baseline knows nothing of it.
    """
    from preflight.expect.compare import compare  # noqa: PLC0415 - only this command

    (document,) = documents([file])
    turned = () if document.verdict is Verdict.PASS else (_not_passed(document),)
    tell(compare(_known(at), document), turned, [f"b: {title(document)}"], output=output, every=every)


def _not_passed(document: Document) -> Turn:
    from preflight.expect.compare import Turn  # noqa: PLC0415 - only check

    return Turn(test="the run", device="", before="to pass", now=document.verdict.value, reason=document.reason)


def _readable(files: Sequence[str]) -> list[tuple[str, Document]]:
    """The documents with the files they are in. What is none is named and passed over."""
    found = []
    for name in files:
        try:
            found += [(name, document) for document in documents([name])]
        except Trouble as trouble:
            click.echo(f"teaches nothing: {clean(trouble.message)}", err=True)
    return found


def _changed(kept: Path, change: Callable[[Baseline], Baseline]) -> tuple[Baseline, Baseline]:
    from preflight import baselines  # noqa: PLC0415 - only these commands

    try:
        return baselines.taught(kept, change)
    except baselines.BaselineError as error:
        raise Trouble(str(error)) from None


def _nodes(known: Baseline) -> set[str]:
    return {name for entry in known.entries for name in entry.nodes}


def _known(at: Path | None) -> Baseline:
    from preflight import baselines  # noqa: PLC0415 - only these commands

    try:
        return baselines.read_baseline(baselines.folder(at) / baselines.BASELINE)
    except baselines.BaselineError as error:
        raise Trouble(str(error)) from None


def _line(row: LevelRow) -> tuple[str, ...]:
    setting = f" ({clean(row.setting)})" if row.setting else ""
    return (
        clean(row.product),
        f"{clean(row.test)} {clean(row.figure)}{setting}",
        "–" if row.usual is None else number(row.usual),
        clean(row.unit),
        "–" if row.spread is None else f"{row.spread * 100:.1f} %",
        str(row.nodes),
        clean(row.software),
    )
