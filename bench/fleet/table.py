"""The figures of a run beside their budgets, as a table in Markdown."""

from __future__ import annotations

from typing import NamedTuple

from bench.fleet.accounts import Accounts, compute_quantiles, fit_slope
from bench.fleet.options import AFTER_STORM_S, JOIN_S, Options
from bench.fleet.outcome import Tally, Took
from bench.fleet.samples import Page, Usage, own_quantile_ms

P99_MS, MEMORY_MIB, BURST_S = 50.0, 1024.0, 5.0  # budgets
BURST_LASTS_S = 10.0


class Run(NamedTuple):
    """Everything that was measured. `decided_s`: from the burst's moment until so many incidents were decided."""

    options: Options
    started_s: float
    tally: Tally
    took: dict[str, Took]
    usages: list[Usage]
    pages: list[Page]
    accounts: Accounts
    load: float


def build_result_rows(run: Run) -> list[str]:
    """The whole table."""
    return [
        "| | budget | measured | |",
        "|---|---|---|---|",
        *_steady(run),
        *_usage(run),
        *_burst(run),
        *_storm(run),
        *_others(run),
        _accounts(run),
    ]


def _row(name: str, value: str, budget: str = "", *, met: bool | None = None) -> str:
    word = "" if met is None else "met" if met else "**missed**"
    return f"| {name} | {budget} | {value} | {word} |"


def calm_time(run: Run) -> tuple[float, float]:
    """When all are connected and nothing special happens, monotonic seconds."""
    begun = run.tally.began_at
    special = [at for at in (run.options.kill_at, run.options.burst_at) if at >= 0]
    return begun + JOIN_S, begun + min([*special, run.options.seconds])


def select_times_between(took: Took, begin: float, end: float) -> list[float]:
    return [each for at, each in zip(took.begun, took.took, strict=True) if begin <= at < end]


def _times(values: list[float]) -> str:
    return "p50 {:.1f} ms, p99 {:.1f} ms, most {:.0f} ms".format(*compute_quantiles(values))


def _steady(run: Run) -> list[str]:
    begin, end = calm_time(run)
    begun, wanted = run.tally.began_at, run.options.nodes / run.options.interval_s
    took = {kind: select_times_between(each, begin, end) for kind, each in run.took.items()}
    joining = select_times_between(run.took["report"], begun, begin)
    reports = took["report"] + took["news"]
    rate = len(reports) / (end - begin)
    p99 = compute_quantiles(reports)[1]
    pages = [page for page in run.pages if begin <= page.at < end]
    lag = f"{max((p.waiting for p in pages), default=0):.0f} pieces of news, batch {max((p.batch_age_s for p in pages), default=0):.2f} s"
    return [
        _row("start until it leads", f"{run.started_s:.2f} s"),
        _row(f"{run.options.nodes} nodes join, {run.options.polls} of them with a poll for orders", _times(joining)),
        _row(
            f"reports, {end - begin:.0f} s", f"{rate:.0f} a second", f"{wanted:.0f} a second", met=rate >= 0.95 * wanted
        ),
        _row("ingest as the node sees it", _times(reports), "p99 ≤ 50 ms", met=p99 <= P99_MS),
        _row(f"of these with news, durable ({len(took['news'])})", _times(took["news"])),
        _row(
            "ingest by the centre's own clock",
            f"p50 ≤ {own_quantile_ms(pages, 0.5):g} ms, p99 ≤ {own_quantile_ms(pages, 0.99):g} ms",
        ),
        _row(f"polls answered late ({len(took['poll'])})", _times(took["poll"])),
        _row("most that waited in the engine", lag),
    ]


def _usage(run: Run) -> list[str]:
    begin, end = calm_time(run)
    calm = [usage for usage in run.usages if begin <= usage.at < end]
    if len(calm) < 2:
        return []
    first, last = calm[0], calm[-1]
    seconds, cpu_s = last.at - first.at, last.cpu_s - first.cpu_s
    count = sum(len(select_times_between(run.took[kind], first.at, last.at)) for kind in ("report", "news"))
    later = [(usage.at, usage.mib) for usage in calm if usage.at >= begin + min(60.0, (end - begin) / 2)]
    most = max(usage.mib for usage in run.usages)
    own_s = run.tally.cpu_s / (run.tally.ended_at - run.tally.began_at)
    memory = f"{first.mib:.0f} MiB, then {last.mib:.0f}, most {most:.0f}; {3600 * fit_slope(later):+.0f} MiB an hour"
    cpu = (
        f"{100 * cpu_s / seconds:.0f} % of a core, {1000 * cpu_s / max(count, 1):.2f} s per 1000 reports with all else"
    )
    late = "p50 {:.1f} ms, p99 {:.1f} ms, most {:.0f} ms".format(*(1000 * each for each in run.tally.own_delay_s))
    return [
        _row("processor", cpu, "one core", met=cpu_s < seconds),
        _row("memory", memory, "≤ 1 GiB", met=most <= MEMORY_MIB),
        _row("the pretended nodes themselves", f"{100 * own_s:.0f} % of a core; late by {late}"),
    ]


def _burst(run: Run) -> list[str]:
    if run.options.burst_at < 0:
        return []
    begin = run.tally.began_at + run.options.burst_at
    news = select_times_between(run.took["news"], begin, begin + BURST_LASTS_S)
    reports = select_times_between(run.took["report"], begin, begin + BURST_LASTS_S)
    done = compute_quantiles(news)[2]
    return [
        _row(
            f"{run.options.burst} faulty nodes at one moment, decided and durable",
            _times(news),
            "≤ 5 s",
            met=done <= 1000 * BURST_S,
        ),
        _row(f"reports of the others within {BURST_LASTS_S:g} s of it", _times(reports)),
    ]


def _storm(run: Run) -> list[str]:
    if run.options.kill_at < 0:
        return []
    begin = run.tally.began_at + run.options.kill_at
    both = [select_times_between(run.took[kind], begin, begin + AFTER_STORM_S) for kind in ("report", "news")]
    gaps = ", ".join(f"{end - start:.1f} s" for start, end in run.tally.gaps) or "none was seen"
    return [
        _row("kill -9 of the leader: nobody leads for", gaps),
        _row(
            f"reports that went out within {AFTER_STORM_S:g} s of it",
            f"{len(both[0]) + len(both[1])}; {_times(both[0] + both[1])}",
        ),
    ]


def _others(run: Run) -> list[str]:
    told = (
        ("failed and told again", run.tally.failed),
        ("slow clients", run.tally.dripped),
        ("malformed", run.tally.malformed),
    )
    return [_row(name, _counts(counts)) for name, counts in told]


def _counts(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} x {word}" for word, count in sorted(counts.items())) or "none"


def _accounts(run: Run) -> str:
    sent, accounts = run.tally.findings.values(), run.accounts
    words = f"{len(sent)} findings, {sum(not each.active for each in sent)} of them over; {accounts.words}"
    return _row("every finding is in the store exactly once", words, "always", met=accounts.good)
