"""What one controller takes of a fleet's reports, by a load generator that does not delay them."""

from __future__ import annotations

from bench.fleet.load_generator import LoadShape
from bench.fleet.options import JOIN_S
from bench.fleet.steady_load import MeasuredLoad, measure_load
from bench.report.records import Budget, Effort, Figure, Limit, Measured, Statistic, at_most, split_into_repeats

INTERVAL_S, BUSY_INTERVAL_S = 10.0, 1.25
BURST = 1000


def measure_ingest(effort: Effort) -> Measured:
    """Four runs: steady, at eight times the rate, all nodes at one moment, and a burst of faults."""
    nodes, seconds = effort.either(1250, 12_500), JOIN_S + effort.either(20, 60)
    steady = measure_load(LoadShape(nodes, INTERVAL_S, seconds, JOIN_S))
    busy = measure_load(LoadShape(nodes, BUSY_INTERVAL_S, seconds, JOIN_S))
    storm = measure_load(LoadShape(nodes, seconds, seconds, 0.0, at_once=True))
    burst = measure_load(LoadShape(nodes, INTERVAL_S, seconds, JOIN_S), burst=BURST)
    assert burst.burst is not None
    return Measured(
        figures=(
            _figure("a report, 99 % of them", "ms", steady.found.latency_ms[1], 50.0),
            _figure("processor a report, all processes", "us", steady.cpu_us, 60.0),
            _figure("memory, all processes", "MiB", steady.mib, 500.0),
            _rate(busy),
            _figure("reconnect storm, the last node", "s", storm.found.latency_ms[2] / 1e3, 10.0),
            _figure(f"{BURST} faulty nodes, the last one durable", "s", max(burst.burst.took_s), 5.0),
            _figure(f"{BURST} faulty nodes, the last one decided", "s", burst.burst.decided_s, 5.0),
            _figure("the other nodes meanwhile, 99 % of the minute", "ms", burst.found.latency_ms[1], 100.0),
        ),
        how=(
            f"`bench.fleet.steady_load`: {nodes:,} nodes, heartbeats each {INTERVAL_S:g} s (rate: {BUSY_INTERVAL_S:g} s), whole "
            "reports in the storm; a generator in C, latency from the due time; SQLite, plain HTTP on loopback, no polls."
        ),
        because="bench/results/2026-11-remediator.md says where time and memory go",
        moves="ingest in processes of its own beside the one that decides",
    )


def _figure(named: str, unit: str, value: float, most: float) -> Figure:
    return Figure(named=named, unit=unit, repeats=split_into_repeats([value]), limits=at_most(p50=most))


def _rate(busy: MeasuredLoad) -> Figure:
    wanted = busy.shape.nodes / busy.shape.interval_s
    rate = busy.found.answered / (busy.shape.seconds - busy.shape.join_s)
    floor = (Limit(Statistic.MEDIAN, 0.99 * wanted, floor=True),)
    return Figure(
        named=f"of {wanted:,.0f} reports a second", unit="a second", repeats=split_into_repeats([rate]), limits=floor
    )


BUDGET = Budget(
    "ingest",
    "Reports of 12 500 nodes, by a generator in C",
    "p99 ≤ 50 ms, ≤ 60 µs of processor a report, ≤ 500 MiB; ≥ 10 000 a second; all reconnect in ≤ 10 s; 1000 faults in ≤ 5 s",
    measure_ingest,
)
