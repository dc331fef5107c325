"""The report as Markdown. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import msgspec

from bench.report.machine import Machine
from bench.report.records import (
    Answer,
    Budget,
    Failed,
    Figure,
    Limit,
    Measured,
    Outcome,
    Statistic,
    Unmeasured,
    summarise_outcome,
)


class Result(msgspec.Struct, frozen=True):
    """A budget with its answer, the seconds that it took; right before, the load average and how long a fixed piece of Python took."""

    budget: Budget
    answer: Answer
    seconds: float
    load: float
    python_ms: float


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """One run of the report."""

    machine: Machine
    at: str  # when it began, UTC
    quick: bool
    load_before: float
    load_after: float
    results: tuple[Result, ...]


GLANCE_MAX = 6
_LEGEND = (
    "Figures are medians over the repeats of each repeat's statistic; *spread* is the least and the greatest median of a repeat. "
    "*n* is repeats × values; with fewer than 100 values a repeat p99 is the greatest. *Beside* is the least that anything of this "
    "kind costs on this machine, measured in the same run, and how many times as much ours is. A limit in **bold** is missed."
)


def render_report(run: Run) -> str:
    """The whole report."""
    return "\n".join(_lines(run)).rstrip("\n") + "\n"


def render_section(result: Result) -> str:
    """One budget alone."""
    return "\n".join(_section(result)).rstrip("\n") + "\n"


def _lines(run: Run) -> Iterator[str]:
    minutes = sum(result.seconds for result in run.results) / 60
    yield "# The budgets, measured\n"
    how = "`python -m bench --quick`: one repeat each, read it as a trial" if run.quick else "`make bench`"
    yield f"{how}. Begun {run.at}, {minutes:.0f} min. Written by the run, not by hand.\n"
    yield from _machine(run)
    yield "## At a glance\n"
    yield "| budget | target | measured | |\n|---|---|---|---|"
    for result in run.results:
        word = summarise_outcome(result.answer)
        shown = word.value if word is Outcome.MET else f"**{word.value}**"
        yield f"| [{result.budget.name}](#{result.budget.name}) | {result.budget.target} | {_glance(result.answer)} | {shown} |"
    yield f"\n{_LEGEND}\n"
    for result in run.results:
        yield from _section(result)


def _machine(run: Run) -> Iterator[str]:
    m = run.machine
    yield "| machine | |\n|---|---|"
    yield f"| processor | {m.processor}, {m.cores} cores |"
    yield f"| memory | {m.memory_gib:.0f} GiB |"
    yield f"| system | {m.system}, Linux {m.kernel}, timer at {m.hz} Hz, Python {m.python} |"
    yield f"| commit | {m.commit} |"
    yield f"| load average | {run.load_before:.1f} before, {run.load_after:.1f} after |\n"


def _glance(answer: Answer) -> str:
    """The figures that a limit is about."""
    if isinstance(answer, Failed):
        return ""
    figures = [figure for figure in answer.figures if figure.limits] or list(answer.figures)
    if len(figures) > GLANCE_MAX:
        nearest = max(figures, key=_nearness)
        return f"{len(figures)} figures, nearest to its limit: {nearest.named} {', '.join(_held(nearest))}"
    return "; ".join(f"{figure.named} {', '.join(_held(figure))}" for figure in figures)


def _nearness(figure: Figure) -> float:
    """How much of its limit a figure takes; above 1 it misses. 0 without one."""
    shares = [figure.value(limit.of) / limit.bound for limit in figure.limits if limit.bound and not limit.floor]
    return max(shares, default=0.0)


def _held(figure: Figure) -> Iterator[str]:
    for of in [limit.of for limit in figure.limits] or [Statistic.MEDIAN]:
        yield f"{_statistic(figure, of)}{format_number(figure.value(of))} {figure.unit}"


def _statistic(figure: Figure, of: Statistic) -> str:
    """A figure of one value a repeat has no p99 to be told apart."""
    return f"{of.value} " if any(repeat.n > 1 for repeat in figure.repeats) else ""


def _section(result: Result) -> Iterator[str]:
    answer = result.answer
    yield f"## {result.budget.name}\n"
    yield f"{result.budget.title}. Target: {result.budget.target}. **{summarise_outcome(answer).value.capitalize()}.**\n"
    if isinstance(answer, Failed):
        yield f"The measurement broke, which says nothing of the product:\n\n```\n{answer.why.strip()}\n```\n"
        return
    if answer.figures:
        yield from _table(answer.figures)
    if isinstance(answer, Unmeasured):
        yield f"Not measurable here: {answer.why} Last real figure: {answer.last}\n"
    else:
        yield from _words(answer)
    before = f"load average {result.load:.1f}, a fixed piece of Python {format_number(result.python_ms)} ms"
    yield f"Right before: {before}. Took {result.seconds:.0f} s.\n"


def _words(answer: Measured) -> Iterator[str]:
    yield f"{answer.how}\n"
    if summarise_outcome(answer) is Outcome.MISSED:
        yield f"- **Why it misses**: {answer.because or 'not known'}"
        yield f"- **What would move it**: {answer.moves or 'not known'}\n"


def _table(figures: Iterable[Figure]) -> Iterator[str]:
    yield "| | p50 | p99 | most | spread | n | limit | beside | times |\n|---|---:|---:|---:|---:|---:|---|---|---:|"
    for figure in figures:
        least, greatest = figure.spread
        p50, p99, most = (format_number(figure.value(of)) for of in (Statistic.MEDIAN, Statistic.P99, Statistic.MOST))
        if not _statistic(figure, Statistic.P99):
            p99 = most = ""
        beside, times = "", ""
        if figure.beside is not None:
            beside = f"{figure.beside.name}: {format_number(figure.beside.median)} {figure.unit}"
            times = format_number(figure.value(Statistic.MEDIAN) / figure.beside.median) if figure.beside.median else ""
        counted = f"{len(figure.repeats)} × {max(repeat.n for repeat in figure.repeats)}"
        limits = ", ".join(_limit(figure, limit) for limit in figure.limits)
        yield (
            f"| {figure.named}, {figure.unit} | {p50} | {p99} | {most} | {format_number(least)} to {format_number(greatest)} "
            f"| {counted} | {limits} | {beside} | {times} |"
        )
    yield ""


def _limit(figure: Figure, limit: Limit) -> str:
    said = f"{_statistic(figure, limit.of)}{'≥' if limit.floor else '≤'} {format_number(limit.bound)}"
    return said if limit.holds(figure.value(limit.of)) else f"**{said}**"


def format_number(value: float) -> str:
    """Three digits that count, no exponent."""
    digits = 0 if abs(value) >= 100 else 1 if abs(value) >= 10 else 2
    return f"{value:,.{digits}f}"
