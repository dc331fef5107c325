"""A day's file for people, with the rows that it proposes for the product table: comments and YAML, one valid table."""

from __future__ import annotations

import glob
from collections.abc import Iterator, Sequence

import msgspec

from preflight.expectations.measurement_keys import BetterDirection, find_better_direction, is_extreme
from preflight.expectations.physical_limits import derive_limits
from preflight.expectations.product_table import Product, ProductRow, ProductTable
from preflight.expectations.sibling_devices import JOINT_TESTS, SIGMAS, UNKNOWN_SHARE
from preflight.platform_measurement.day_records import DayDocument, FigureScatter
from preflight.report.text_columns import align_columns
from preflight.report.value_format import escape_text, format_number
from preflight.results import Figure
from vocabulary.text.plurals import format_count

LISTED = 12
SCATTER_MAX = 0.12  # a figure that scatters more has no usual value to propose
PERCENT = 100


def render_day(day: DayDocument) -> str:
    """Comment lines that sum up the file, then the proposed table."""
    return "".join(f"# {escape_text(line)}\n" for line in _summarise(day)) + _render_table(propose_table(day))


def _summarise(day: DayDocument) -> Iterator[str]:
    software = ", ".join(f"{name} {version}" for name, version in sorted(day.software.items()))
    verdicts = [gate.verdict.value for gate in day.gates]
    counts = ", ".join(f"{verdicts.count(each)} {each}" for each in sorted(set(verdicts)))
    yield f"{day.node}: {len(day.devices)} x {day.product or 'unknown'}; {software or 'unknown software'}"
    yield f"{day.ending.value} after {day.seconds / 60:.1f} of {day.minutes:g} min; gates: {counts or 'none'}"
    for stage in day.stages:
        notes = f"; {'; '.join(stage.notes)}" if stage.notes else ""
        yield f"{stage.stage.value}: {stage.done} of {stage.planned} in {stage.seconds:.0f} s{notes}"
    for why in day.driver.failures:
        yield f"driver: {why}"
    yield from _summarise_faults(day)
    for alarms in day.false_alarms:
        kind = "with a baseline of 12 such nodes" if alarms.measured_platform else "without a baseline"
        yield (
            f"healthy nodes with this scatter, {kind}: {alarms.failed} of {alarms.nodes} fail, "
            f"{alarms.inconclusive} are inconclusive"
        )
    if day.rounding:
        most = max(day.rounding, key=lambda use: use.share)
        yield f"rounding limits: {most.share:.0%} used at most ({most.setting}, {most.judge})"
    works = sum(map(len, day.goldens.values()))
    yield f"goldens: {format_count(works, 'work')} on {format_count(len(day.goldens), 'platform')}"
    yield from _list_scatter(day.figures)
    yield from _list_ceilings(day)


def _summarise_faults(day: DayDocument) -> Iterator[str]:
    elsewhere = sum(fault.found for fault in day.missed)
    yield (
        f"faults: {format_count(len(day.faults), 'fault')} injected, {len(day.missed) - elsewhere} not found, "
        f"{elsewhere} found but not on one device"
    )
    for fault in day.missed:
        name = f"{fault.test}:{fault.fault} ({fault.level})"
        if fault.found:
            yield f"  {name}: {fault.outcome.value} on {', '.join(fault.accused)}, injected on {fault.device}"
        else:
            yield f"  {name}: not found, {fault.outcome.value}"


def _list_scatter(figures: Sequence[FigureScatter]) -> Iterator[str]:
    if not figures:
        return
    worst = sorted(figures, key=lambda each: -max(each.between, each.repeat))[:LISTED]
    yield f"the figures that scatter most, of {len(figures)}:"
    rows = [("  figure", "usual", "unit", "between devices", "between repeats")]
    rows += [
        (
            f"  {each.test} {each.figure} ({each.setting})",
            format_number(each.usual),
            each.unit,
            f"{PERCENT * each.between:.1f} %",
            f"{PERCENT * each.repeat:.1f} %",
        )
        for each in worst
    ]
    yield from align_columns(rows, right={1, 3, 4})


def _list_ceilings(day: DayDocument) -> Iterator[str]:
    for each in day.ceilings:
        limits = [
            f"{PERCENT * each.reached / most:.0f} % of the {name}, {format_number(most)}"
            for name, most in (("physical limit", each.physical), ("table's usual", each.table_usual))
            if most > 0
        ]
        yield f"{each.test} {each.figure} ({each.setting}): {format_number(each.reached)} {each.unit}, {'; '.join(limits)}"


def propose_table(day: DayDocument) -> ProductTable:
    """Rows from this node's medians, as a site's product table. Empty for a host without GPUs, or for mixed products."""
    products = {device.product for device in day.devices if not device.on_host}
    if len(products) != 1 or day.gate is None:
        return ProductTable()
    (name,) = products
    rows = tuple(row for each in day.figures if (row := _propose_row(each, len(day.gates))) is not None)
    memory = derive_limits(day.gate.results, day.devices[-1].name).get("memory")
    product = Product(
        product=name,
        names=(name,),
        memory=round(memory.most) if memory else 0,
        power=float(power) if isinstance(power := day.facts.get("power_limit_default_w"), int | float) else 0.0,
        source=f"measured on one node, {day.node}; driver {day.software.get('driver', 'unknown')}",
        rows=rows,
    )
    return ProductTable(products=(product,))


def _propose_row(each: FigureScatter, gates: int) -> ProductRow | None:
    """A row for a figure of single devices that repeats; worse than usual by the share that siblings may differ is wrong."""
    way = find_better_direction(each.unit)
    scatter = max(each.between, each.repeat)
    extreme = is_extreme(Figure(name=each.figure, value=each.usual, unit=each.unit))
    pair = each.test == "peer_links" and " to " in each.setting  # of one pair, by the devices' names
    if way is BetterDirection.NEITHER or each.test in JOINT_TESTS or extreme or pair or scatter > SCATTER_MAX:
        return None
    share = max(UNKNOWN_SHARE, SIGMAS * scatter)
    worst = each.usual * (1 - share) if way is BetterDirection.MORE else each.usual / (1 - share)
    return ProductRow(
        test=each.test,
        figure=each.figure,
        setting=glob.escape(each.setting) or "*",
        unit=each.unit,
        usual=float(f"{each.usual:.4g}"),
        worst=float(f"{worst:.4g}"),
        source=f"median of {format_count(len(each.values), 'device')} in {format_count(gates, 'gate')}, {share:.0%} less is wrong",
    )


def _render_table(table: ProductTable) -> str:
    import yaml  # noqa: PLC0415 - a tenth of a second

    text: str = yaml.safe_dump(msgspec.to_builtins(table), sort_keys=False, allow_unicode=True, width=120)
    return text
