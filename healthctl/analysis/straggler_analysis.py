"""`healthctl analyze stragglers`: finds the ranks that slow a job down, from step times. Works offline."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from healthctl.analysis.answers import Culprit, JobVerdict, Reason
from healthctl.cli.screen import Screen, output_options
from healthctl.exit_codes import Exit, Failure
from healthctl.rendering.blocks import Block, Column, Line, Rows

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from healthctl.analysis.event_table import Table
    from remediator.detection.stragglers.step_trace import StepTrace
    from remediator.detection.stragglers.straggler_verdict import StragglerVerdict

CULPRITS_SHOWN, REASONS_SHOWN = 8, 8
TIME_COLUMNS = ("compute_s", "forward_s", "step_s")
OTHER_NAMES = {"rank": ("global_rank",), "tokens_squared": ("tokens_sq", "sum_l2", "sum_squared_length")}


class StragglerAnalysis(msgspec.Struct, frozen=True):
    """JSON output."""

    jobs: tuple[JobVerdict, ...]


@click.command(epilog="Example: healthctl analyze stragglers steps.csv --plot steps.svg")
@click.argument("file", type=click.Path(exists=True, path_type=Path))
@click.option("--until", type=click.IntRange(min=0), help="Use steps up to this one. Default: all.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path),
              help="Also write a heat map of stages × ranks to FILE.svg or FILE.html.")  # fmt: skip
@output_options
def stragglers(screen: Screen, file: Path, until: int | None, plot: Path | None) -> None:
    """Find the ranks that slow each job down.

    Reads step times from FILE (CSV, JSON lines or Parquet), or from a directory of NCCL Inspector logs. Columns: job, step, rank, compute_s; optional: forward_s,
    backward_s, comm_s, data_s, step_s, stage, role, dp_rank, pp_rank, tp_rank, tokens, node, time
    (docs/explanation/stragglers.md). Exits with 1 if a straggler is found, with 3 if no job has enough steps to analyze.
    """
    from healthctl.analysis.event_table import read_table
    from remediator.detection.stragglers.straggler_judgement import judge_stragglers

    if plot is not None and plot.suffix.lower() not in {".svg", ".html"}:
        raise Failure(f"{plot}: write the plot to FILE.svg or FILE.html (a browser converts either to PNG)", Exit.USAGE)
    if file.is_dir():
        from healthctl.analysis.nccl_inspector_logs import read_inspector_logs

        table = read_inspector_logs(file)
    else:
        table = read_table(file)
    answers, traces = [], []
    for name, trace in group_rows_by_job(table):
        known = trace if until is None else trace.until(until)
        answers.append(_build_job_analysis(name, judge_stragglers(known)))
        traces.append(known)
    answer = StragglerAnalysis(tuple(answers))
    if plot is not None:
        from healthctl.analysis.straggler_heat_map import write_straggler_heat_map

        write_straggler_heat_map(plot, answer.jobs, traces)
    screen.code = _exit_code_for(answer)
    screen.show(answer, lambda: _render_analysis(answer))


def _exit_code_for(answer: StragglerAnalysis) -> Exit:
    if any(job.culprits for job in answer.jobs):
        return Exit.PROBLEM
    return Exit.OK if any(_was_judged(job) for job in answer.jobs) else Exit.UNKNOWN


def _was_judged(job: JobVerdict) -> bool:
    """Whether there was enough data: an empty verdict with zero confidence means there was not."""
    return job.confidence > 0 or bool(job.culprits)


def group_rows_by_job(rows: Table) -> Iterator[tuple[str, StepTrace]]:
    """Group measurements by job, in order of first appearance; raises a Failure that names a missing column."""
    import numpy as np

    from remediator.detection.stragglers.step_trace import LENGTHS, NAMES, PLACES, SECONDS, build_step_trace

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
        yield name, build_step_trace({column: values[own] for column, values in columns.items()})


def _build_job_analysis(name: str, verdict: StragglerVerdict) -> JobVerdict:
    return JobVerdict(
        job=name,
        verdict=verdict.verdict.value,
        culprits=tuple(Culprit(each.rank, each.node, each.slowdown) for each in verdict.culprits),
        first_step=verdict.first_step,
        confidence=verdict.confidence,
        reasons=tuple(Reason(each.name, each.value, each.rank) for each in verdict.reasons),
    )


def _render_analysis(answer: StragglerAnalysis) -> Iterator[Block]:
    yield Rows(answer.jobs, _COLUMNS, "no data: the file has no rows")
    for job in answer.jobs:
        said = [
            f"{_humanize_reason_name(each.name)} {each.value:g}{_format_reason_rank(each)}"
            for each in job.reasons[:REASONS_SHOWN]
        ]
        yield Line(f"{job.job}: {'' if _was_judged(job) else 'not analyzed: '}{'; '.join(said)}")


_COLUMNS: tuple[Column[JobVerdict], ...] = (
    Column("JOB", lambda job: job.job),
    Column("VERDICT", lambda job: job.verdict if _was_judged(job) else "not known"),
    Column(
        "CULPRITS",
        lambda job: ", ".join(map(_format_culprit, job.culprits[:CULPRITS_SHOWN])) + _format_culprit_overflow(job),
    ),
    Column("SINCE STEP", lambda job: "" if job.first_step is None else str(job.first_step)),
    Column("CONFIDENCE", lambda job: f"{job.confidence:.0%}"),
)


def _format_culprit(culprit: Culprit) -> str:
    where = f" on {culprit.node}" if culprit.node else ""
    return f"rank {culprit.rank}{where} +{culprit.slowdown:.0%}"


def _format_culprit_overflow(job: JobVerdict) -> str:
    left = len(job.culprits) - CULPRITS_SHOWN
    return f" and {left} more" if left > 0 else ""


def _humanize_reason_name(name: str) -> str:
    return name.replace("_", " ")


def _format_reason_rank(reason: Reason) -> str:
    return "" if reason.rank is None else f" (rank {reason.rank})"
