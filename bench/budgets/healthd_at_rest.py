"""What the node daemon costs while nothing is wrong."""

from __future__ import annotations

from pathlib import Path

from bench import minimum_costs
from bench.node_cost import Rest, gcm_at_rest, of_healthd
from bench.report.records import Beside, Budget, Effort, Figure, Measured, at_most, split_into_repeats

PROCESSES = 3


def measure_healthd_at_rest(effort: Effort) -> Measured:
    """Start it, wait until every call was made once, and look at all its processes."""
    seconds = float(effort.either(10, 30))
    found = [of_healthd(seconds) for _ in range(effort.repeats)]
    peer = gcm_at_rest(Path(effort.gcm), seconds) if effort.gcm else None
    of_peer = Beside("gcm's nvml_monitor", sum(peer.cpu_percent)) if peer else None
    floor = Beside(f"{PROCESSES} bare interpreters", minimum_costs.interpreters_mib(PROCESSES))
    figures = [
        _figure("processor, all processes", "% of a core", [sum(rest.cpu_percent) for rest in found], 0.2, of_peer),
        _figure("resident, sum over the processes", "MiB", [sum(rest.resident_mib) for rest in found], 40.0, floor),
        _figure("resident, each page of a file once", "MiB", [rest.together_mib for rest in found]),
        _figure("proportional share (PSS)", "MiB", [rest.own_mib for rest in found]),
    ]
    if peer:
        figures.append(_figure("gcm's nvml_monitor, resident", "MiB", [sum(peer.resident_mib)]))
    return Measured(
        figures=tuple(figures),
        how=f"healthd on the fake driver library, 8 GPUs at 1 Hz, over {seconds:g} s after 20 s. {_each(found[0])}",
        because=(
            "processor: half of the NVML child's time is the fake library and its system calls. Memory: three bare interpreters take 26 MiB as a sum, "
            "which counts the interpreter's own pages and libc three times; pynvml, msgspec, SQLite and libcrypto take most of the rest"
        ),
        moves="fewer processes, or a compiled NVML child (what was tried: bench/results/2026-11-healthd-cost.md)",
    )


def _figure(
    named: str, unit: str, values: list[float], limit: float | None = None, beside: Beside | None = None
) -> Figure:
    return Figure(named=named, unit=unit, repeats=split_into_repeats(values), limits=at_most(p50=limit), beside=beside)


def _each(rest: Rest) -> str:
    told = ", ".join(f"{mib:.1f}" for mib in rest.resident_mib)
    return f"First repeat, MiB resident of main, NVML child and source child: {told}."


BUDGET = Budget(
    "healthd-at-rest",
    "The node daemon, 8 GPUs at 1 Hz",
    "≤ 0.2 % of one core, ≤ 40 MiB resident over all processes",
    measure_healthd_at_rest,
)
