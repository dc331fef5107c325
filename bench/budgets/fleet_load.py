"""One remediator under a whole fleet, and a thousand nodes that break at the same moment."""

from __future__ import annotations

import os
import statistics
import tempfile
from pathlib import Path

from bench import bare
from bench.fleet import store
from bench.fleet.__main__ import measure as loaded
from bench.fleet.__main__ import polls_allowed
from bench.fleet.centre import CORE, free_ports
from bench.fleet.options import Options
from bench.fleet.table import BURST_LASTS_S, Run, between, calm_time
from bench.report.records import Beside, Budget, Effort, Figure, Limit, Measured, Statistic, at_most, once, summary

ASKED = 200
FULL = 90.0  # % of a core


def measure(effort: Effort) -> Measured:
    """One run; it is long, and repeated by its many reports."""
    if (os.cpu_count() or 1) > 1:
        os.sched_setaffinity(0, set(range(os.cpu_count() or 1)) - {CORE})
    beside = Beside("a bare HTTP exchange, nothing else going on", statistics.median(bare.http_exchanges(ASKED)) * 1e3)
    with (
        tempfile.TemporaryDirectory(prefix="gh-fleet-", ignore_cleanup_errors=True) as place,
        store.running("sqlite", Path(place)) as url,
    ):
        run = loaded(_options(effort, place), url, os.getloadavg()[0])
    accounts = (
        "every finding was in the store exactly once"
        if run.accounts.good
        else f"**findings do not add up**: {run.accounts.words}"
    )
    ingest, rate = _ingest(run, beside)
    processor, memory = _usage(run)
    return Measured(
        figures=(ingest, rate, processor, memory, _burst(run)),
        how=(
            f"`bench.fleet`: {run.options.nodes:,} pretended nodes, each a report in {run.options.interval_s:g} s with step windows and faults, {run.options.polls:,} of them with a poll "
            f"for orders, {run.options.seconds:g} s, SQLite, plain HTTP on loopback; the remediator has a core, the nodes share the other. After all had connected; {accounts}. "
            f"Refused or cut and told again: {sum(run.tally.failed.values())}."
        ),
        because=_because(rate.value(Statistic.MEDIAN), processor.value(Statistic.MEDIAN)),
        moves="processors of its own; smaller cells (docs/internals/cells.md)",
    )


def _options(effort: Effort, place: str) -> Options:
    nodes, seconds = effort.either(1200, 12_500), float(effort.either(50, 150))
    return Options(
        nodes=nodes,
        seconds=seconds,
        place=place,
        ports=free_ports(1),
        polls=polls_allowed(nodes, nodes),
        burst=1000,
        burst_at=0.85 * seconds,
    )


def _ingest(run: Run, beside: Beside) -> tuple[Figure, Figure]:
    begin, end = calm_time(run)
    took = [ms for kind in ("report", "news") for ms in between(run.took[kind], begin, end)]
    rate = len(took) / (end - begin)
    wanted = run.options.nodes / run.options.interval_s
    ingest = Figure(
        named="ingest as the node sees it",
        unit="ms",
        repeats=(summary(took, 1e3),),
        limits=at_most(p99=50.0),
        beside=beside,
    )
    floor = (Limit(Statistic.MEDIAN, 0.95 * wanted, floor=True),)
    return ingest, Figure(named="reports taken", unit="a second", repeats=once([rate]), limits=floor)


def _because(rate: float, share: float) -> str:
    """Of reports a second, and what of the core they took with all else, %."""
    if share < FULL:
        return "this run does not tell: look at the load average first; what was found out stands in bench/results/2026-11-remediator.md"
    return (
        f"the core is full: {rate:.0f} reports a second with all else take {share:.0f} % of it, {10_000 * share / rate:.0f} µs each "
        "where 800 are all there is, and what does not fit waits (bench/results/2026-11-remediator.md)"
    )


def _usage(run: Run) -> tuple[Figure, Figure]:
    begin, end = calm_time(run)
    quiet = [usage for usage in run.usages if begin <= usage.at < end]
    if len(quiet) < 2:
        raise RuntimeError(
            f"the remediator led at {len(quiet)} of the looks at it once all had connected: this machine is too busy to say anything"
        )
    first, last = quiet[0], quiet[-1]
    share = 100 * (last.cpu_s - first.cpu_s) / (last.at - first.at)
    most = max(usage.mib for usage in run.usages)
    return (
        Figure(named="processor", unit="% of a core", repeats=once([share]), limits=at_most(p50=100.0)),
        Figure(named="memory, most", unit="MiB", repeats=once([most]), limits=at_most(p50=1024.0)),
    )


def _burst(run: Run) -> Figure:
    begin = run.tally.began_at + run.options.burst_at
    news = between(run.took["news"], begin, begin + BURST_LASTS_S)
    named = f"burst of {run.options.burst} faulty nodes, decided and durable"
    return Figure(named=named, unit="s", repeats=(summary(news),), limits=at_most(most=5.0))


BUDGET = Budget(
    "fleet-load",
    "One remediator process on one core",
    "12 500 nodes reporting every 10 s, p99 ingest ≤ 50 ms, ≤ 1 GiB; a burst of 1000 faulty nodes decided in ≤ 5 s",
    measure,
)
