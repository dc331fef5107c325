"""`healthctl analyze hang`: finds the ranks that block a stuck job, from flight recorder dumps. Works offline."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.cli.screen import Screen, output_options
from healthctl.exit_codes import Exit, Failure
from healthctl.rendering.blocks import Line

if TYPE_CHECKING:
    from healthctl.flight_recorder.dumps import Dump
    from remediator.detection.hangs.call_records import HangVerdict

PLACES_MAX = 12


class HangAnalysis(msgspec.Struct, frozen=True):
    """JSON output. `kind`: one of `WORDS`, or none; docs/explanation/hangs.md."""

    kind: str
    culprits: tuple[int, ...]
    victims: tuple[int, ...]
    collective: str | None
    group: str | None
    reasons: list[str]


@click.command(epilog="Example: healthctl analyze hang /scratch/dumps --world 64")
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--world", type=click.IntRange(1, 1_000_000), help="World size of the job; needed to detect ranks without a dump."
)
@output_options
def hang(screen: Screen, directory: Path, world: int | None) -> None:
    """Find the ranks that block a stuck job, and the collective they block.

    Reads PyTorch flight recorder dumps in DIRECTORY. Dumps are pickles; no code in them runs. Exits with 0 if nothing hangs,
    with 1 otherwise.


    """
    from healthctl.flight_recorder.collective_snapshot import build_snapshot
    from healthctl.flight_recorder.dumps import RANKS_MAX, DumpError, read_directory
    from remediator.detection.hangs.hang_verdict import judge_hang

    try:
        found = read_directory(directory)
    except (DumpError, OSError) as error:
        raise Failure(str(error)) from None
    if not found.dumps and found.unreadable:
        raise Failure(next(iter(found.unreadable.values())))
    if not found.dumps:
        todo = "PyTorch writes them to TORCH_FR_DUMP_TEMP_FILE if TORCH_FR_BUFFER_SIZE is set"
        raise Failure(f"{directory}: no file name ends in a rank number; {todo}", Exit.USAGE)
    ranks = [*found.dumps, *(rank for rank in found.unreadable if rank < RANKS_MAX)]
    snapshot = build_snapshot(found.dumps, max(world or 0, max(ranks) + 1))
    verdict = judge_hang(snapshot)
    reasons = [*verdict.reasons, *_locate_culprit_calls(verdict.culprits, found.dumps), *found.unreadable.values()]
    root = verdict.root
    answer = HangAnalysis(
        kind=verdict.kind,
        culprits=verdict.culprits,
        victims=verdict.victims,
        collective=root.name if root else None,
        group=snapshot.groups[root.group].label if root else None,
        reasons=reasons,
    )
    screen.code = Exit.OK if verdict.kind == "none" else Exit.PROBLEM
    screen.show(answer, lambda: _render_verdict(verdict, reasons))


WORDS = {
    "unfinished_call": "check {}: its GPU or its link failed inside a call",
    "dead_rank": "check {}: no record, and the others wait for it",
    "stuck_compute": "check {}: the others wait for it, and it waits for no other rank",
    "mismatched_collectives": "check {}: its calls, or their order, differ from the others",
    "network": "check the network between the ranks of that group, and their GPUs",
    "undetermined": "check the GPUs of that group, and the network between them",
}
UNNAMED = "check the ranks below: one of their GPUs or links failed inside a call"


def _render_verdict(verdict: HangVerdict, reasons: list[str]) -> list[Line]:
    from remediator.detection.hangs.verdict_text import format_ranks

    lines: list[Line] = []
    if verdict.kind in WORDS:
        words = UNNAMED if verdict.kind == "unfinished_call" and not verdict.culprits else WORDS[verdict.kind]
        lines.append(Line(words.format(format_ranks(verdict.culprits))))
    lines += [Line(reason, indent=4 if lines else 0) for reason in reasons]
    if verdict.victims:
        lines.append(Line(f"only waiting: {format_ranks(verdict.victims)}"))
    return lines


def _locate_culprit_calls(culprits: tuple[int, ...], dumps: Mapping[int, Dump]) -> list[str]:
    """Where each culprit last called an operation, outside of torch, if the dump records it."""
    places = []
    for rank in culprits[:PLACES_MAX]:
        calls = dumps[rank].calls if rank in dumps else []
        if calls:
            own = [frame for frame in calls[-1].frames if "/torch/" not in frame.filename and frame.filename]
            where = f", called from {own[0].filename}:{own[0].line} in {own[0].name}" if own else ""
            last = calls[-1]
            places.append(f"rank {rank} was last seen in {last.profiling_name} number {last.number}{where}")
    return places
