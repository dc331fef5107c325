"""`healthctl analyze hang`: why a job hangs, from what its ranks left behind. Works offline."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from healthctl.exits import Exit, Failure
from healthctl.output import clean, json_text, output_option

if TYPE_CHECKING:
    from healthctl.hang.verdict import Stuck, Verdict

RANKS_NAMED = 12


@click.command()
@click.argument("directory", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option(
    "--world", type=click.IntRange(1, 1_000_000), help="How many ranks the job has, to miss those without a dump."
)
@output_option
def hang(directory: Path, world: int | None, output: str) -> None:
    """Read PyTorch's flight recorder dumps in DIRECTORY and say which rank did not arrive at which collective.

    Dumps are pickles; nothing in them is run. Ends with 0 if nothing stands still, with 1 if something does.
    """
    from healthctl.hang.dumps import DumpError, read_directory
    from healthctl.hang.verdict import judge

    try:
        dumps = read_directory(directory)
    except (DumpError, OSError) as error:
        raise Failure(str(error)) from None
    if not dumps:
        todo = "PyTorch writes them where TORCH_FR_DUMP_TEMP_FILE says, if TORCH_FR_BUFFER_SIZE is set"
        raise Failure(f"{directory}: no file there ends in a rank's number; {todo}", Exit.USAGE)
    verdict = judge(dumps, world or 0)
    click.echo(json_text(verdict) if output == "json" else _page(verdict))
    raise SystemExit(Exit.PROBLEM if verdict.stuck else Exit.OK)


def _page(verdict: Verdict) -> str:
    lines = [line for each in verdict.stuck for line in _group(each)]
    if not verdict.stuck:
        lines.append(f"nothing stands still in the dumps of {verdict.ranks} ranks")
    if verdict.silent:
        lines.append(f"no dump: rank {_names(verdict.silent)} (dead, or stopped before it could write one)")
    if verdict.culprits:
        lines.append(f"look at: rank {_names(verdict.culprits)}")
    if verdict.victims and not verdict.cycle:
        lines.append(f"waiting themselves: rank {_names(verdict.victims)}")
    if verdict.cycle:
        lines.append("every rank waits for another: collectives of different groups are called in different orders")
    return "\n".join(clean(line) for line in lines)


def _group(stuck: Stuck) -> list[str]:
    name = f"group {stuck.group}" + (f" ({stuck.description})" if stuck.description not in ("", "undefined") else "")
    head = f"{name}: {stuck.operation} number {stuck.number}"
    words = {
        "missing": f"rank {_names(stuck.missing)} has not arrived, {len(stuck.waiting)} wait",
        "mismatch": f"rank {_names(stuck.odd)} called something else than the others",
        "not_started": f"rank {_names(stuck.odd)} has it queued, the others run it",
        "inside": f"all {len(stuck.waiting)} entered and none came out: look at the network and the GPUs",
    }
    lines = [f"{head}: {words[stuck.kind]}"]
    if not stuck.members_known:
        lines.append("    the dumps do not tell who belongs to this group: ranks that never entered it are not counted")
    for place in stuck.places[:RANKS_NAMED]:
        where = f", called from {place.called_from}" if place.called_from else ""
        lines.append(f"    rank {place.rank}: last seen in {place.operation} number {place.number}{where}")
    return lines


def _names(ranks: tuple[int, ...]) -> str:
    more = f" and {len(ranks) - RANKS_NAMED} more" if len(ranks) > RANKS_NAMED else ""
    return ", ".join(map(str, ranks[:RANKS_NAMED])) + more
