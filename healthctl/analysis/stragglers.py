"""`healthctl analyze stragglers`: who slows a job down, from what its ranks measured. Works offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.analysis.answers import Culprit, JobVerdict, Reason
from healthctl.exits import Exit, Failure
from healthctl.output import Block, Column, Line, Rows
from healthctl.screen import Screen, output_options

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from healthctl.analysis.table import Table
    from remediator.detect.stragglers.trace import Trace
    from remediator.detect.stragglers.verdict import Verdict

CULPRITS_SHOWN, REASONS_SHOWN = 8, 8
TIME_COLUMNS = ("compute_s", "forward_s", "step_s")
OTHER_NAMES = {"rank": ("global_rank",), "tokens_squared": ("tokens_sq", "sum_l2", "sum_squared_length")}


class Answer(msgspec.Struct, frozen=True):
    """What programs get."""

    jobs: tuple[JobVerdict, ...]


@click.command(epilog="Example: healthctl analyze stragglers steps.csv --plot steps.svg")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--until", type=click.IntRange(min=0), help="Judge by the steps up to this one; default: all.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path),
              help="Also draw stages × ranks: FILE.svg or FILE.html.")  # fmt: skip
@output_options
def stragglers(screen: Screen, file: Path, until: int | None, plot: Path | None) -> None:
    """Read step times from FILE (CSV, JSON lines or Parquet) and name the ranks that slow each job down, or nobody.

    Columns: job, step, rank, compute_s; optional: forward_s, backward_s, comm_s, data_s, step_s, stage, role, dp_rank,
    pp_rank, tp_rank, tokens, node, time (docs/explanation/stragglers.md). Ends with 1 if somebody is named, with 3 if no job could be
    judged: there is no row, or too few steps.
    """
    from healthctl.analysis.table import read_table
    from remediator.detect.stragglers.judge import judge

    if plot is not None and plot.suffix.lower() not in {".svg", ".html"}:
        raise Failure(f"{plot}: a plot is FILE.svg or FILE.html (a browser makes a PNG of either)", Exit.USAGE)
    answers, traces = [], []
    for name, trace in jobs_of(read_table(file)):
        known = trace if until is None else trace.until(until)
        answers.append(_job(name, judge(known)))
        traces.append(known)
    answer = Answer(tuple(answers))
    if plot is not None:
        from healthctl.analysis.stragglers_plot import draw

        draw(plot, answer.jobs, traces)
    screen.code = _code(answer)
    screen.show(answer, lambda: _page(answer))


def _code(answer: Answer) -> Exit:
    if any(job.culprits for job in answer.jobs):
        return Exit.PROBLEM
    return Exit.OK if any(_was_judged(job) for job in answer.jobs) else Exit.UNKNOWN


def _was_judged(job: JobVerdict) -> bool:
    """Nobody, with no confidence at all, is no verdict: there was too little to go by."""
    return job.confidence > 0 or bool(job.culprits)


def jobs_of(rows: Table) -> Iterator[tuple[str, Trace]]:
    """Each job's measurements, in the order in which the jobs first appear; a Failure says which column is missing."""
    import numpy as np

    from remediator.detect.stragglers.trace import LENGTHS, NAMES, PLACES, SECONDS, gather

    rows.need("step", *(() if rows.first_of("rank", *OTHER_NAMES["rank"]) else ("rank",)))
    if rows.first_of(*TIME_COLUMNS) is None:
        rows.need("compute_s")
    columns: dict[str, npt.NDArray[np.generic]] = {}
    for name in ("step", "rank", *SECONDS, *LENGTHS, *PLACES):
        there = rows.first_of(name, *OTHER_NAMES.get(name, ()))
        if there is not None:
            columns[name] = rows.numbers(there)
    for name in NAMES:
        if name in rows:
            columns[name] = np.array(rows.texts(name), dtype=object)
    if "time" in rows:
        columns["time"] = rows.times("time")
    names = [name or "" for name in rows.texts("job")] if "job" in rows else [rows.path.stem] * rows.rows
    number = {name: place for place, name in enumerate(dict.fromkeys(names))}
    job = np.fromiter((number[name] for name in names), dtype=np.int64, count=len(names))
    for name, place in number.items():
        own = np.flatnonzero(job == place)
        yield name, gather({column: values[own] for column, values in columns.items()})


def _job(name: str, verdict: Verdict) -> JobVerdict:
    return JobVerdict(
        job=name,
        verdict=verdict.verdict.value,
        culprits=tuple(Culprit(each.rank, each.node, each.slowdown) for each in verdict.culprits),
        first_step=verdict.first_step,
        confidence=verdict.confidence,
        reasons=tuple(Reason(each.name, each.value, each.rank) for each in verdict.reasons),
    )


def _page(answer: Answer) -> Iterator[Block]:
    yield Rows(answer.jobs, _COLUMNS, "nothing to judge: the file has no row")
    for job in answer.jobs:
        said = [f"{_words(each.name)} {each.value:g}{_whose(each)}" for each in job.reasons[:REASONS_SHOWN]]
        yield Line(f"{job.job}: {'' if _was_judged(job) else 'not judged: '}{'; '.join(said)}")


_COLUMNS: tuple[Column[JobVerdict], ...] = (
    Column("JOB", lambda job: job.job),
    Column("VERDICT", lambda job: job.verdict if _was_judged(job) else "not known"),
    Column("CULPRITS", lambda job: ", ".join(map(_culprit, job.culprits[:CULPRITS_SHOWN])) + _more(job)),
    Column("SINCE STEP", lambda job: "" if job.first_step is None else str(job.first_step)),
    Column("CONFIDENCE", lambda job: f"{job.confidence:.0%}"),
)


def _culprit(culprit: Culprit) -> str:
    where = f" on {culprit.node}" if culprit.node else ""
    return f"rank {culprit.rank}{where} +{culprit.slowdown:.0%}"


def _more(job: JobVerdict) -> str:
    left = len(job.culprits) - CULPRITS_SHOWN
    return f" and {left} more" if left > 0 else ""


def _words(name: str) -> str:
    return name.replace("_", " ")


def _whose(reason: Reason) -> str:
    return "" if reason.rank is None else f" (rank {reason.rank})"
