"""What follows from the gates of a day: scatter of every figure, ceilings, rounding limits used, goldens. Pure."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Sequence

from preflight.check_context import Device
from preflight.device_comparison.golden_recorder import record_goldens
from preflight.expectations.measurement_keys import MeasurementKey, compute_spread, iterate_readings
from preflight.expectations.physical_limits import derive_limits, select_limit
from preflight.expectations.product_table import ProductTable, find_product, find_product_row
from preflight.expectations.sibling_devices import JOINT_TESTS
from preflight.platform_measurement.day_plan import find_target
from preflight.platform_measurement.day_records import (
    Ceiling,
    FaultReport,
    FigureNoise,
    FigureScatter,
    GateRun,
    RoundingUse,
)
from preflight.results import Document, Figure, Outcome, Result, Verdict

ROUNDING = "rounding_used"  # evidence of `matmul_repeat`
_ACCUSING = (Outcome.FAIL, Outcome.HANG, Outcome.ERROR)


def summarise_gate(document: Document) -> GateRun:
    """Verdict and times of one gate."""
    tests: dict[str, float] = {}
    for result in document.results:
        tests[result.test] = max(tests.get(result.test, 0.0), result.seconds)
    return GateRun(
        verdict=document.verdict,
        reason=document.reason,
        started_at=document.started_at,
        seconds=document.seconds,
        tests=tests,
    )


def measure_scatter(gates: Sequence[Document]) -> tuple[FigureScatter, ...]:
    """Every figure of the devices over all gates: results that passed, and those that only a limit of rates spoke against."""
    found: dict[MeasurementKey, dict[str, list[float]]] = {}
    units: dict[MeasurementKey, str] = {}
    for document in gates:
        usable = [result for result in document.results if result.outcome is Outcome.PASS or result.by_limit]
        for key, device, figure in iterate_readings(usable, document.devices):
            if device and units.setdefault(key, figure.unit) == figure.unit:
                found.setdefault(key, {}).setdefault(device, []).append(figure.value)
    return tuple(_summarise_figure(key, units[key], values) for key, values in sorted(found.items()))


def _summarise_figure(key: MeasurementKey, unit: str, values: dict[str, list[float]]) -> FigureScatter:
    middles = {device: statistics.median(each) for device, each in values.items()}
    relative = [
        value / middles[device]
        for device, each in values.items()
        for value in each
        if len(each) > 1 and middles[device] > 0
    ]
    joint = key.test in JOINT_TESTS
    repeat = compute_spread(relative) if relative else 0.0
    return FigureScatter(
        product=key.product,
        test=key.test,
        figure=key.figure,
        setting=key.setting,
        unit=unit,
        usual=statistics.median(middles.values()),
        between=0.0 if joint else compute_spread(list(middles.values())),
        repeat=repeat,
        joint=joint,
        values={device: tuple(each) for device, each in values.items()},
    )


def build_noises(figures: Iterable[FigureScatter], devices: Sequence[Device]) -> list[FigureNoise]:
    """The measured scatter, as input of the simulation: figures of all devices, at their usual value.

    Nodes are taken to scatter as the devices of this one do; a single device, or a joint figure, as its repeats do.
    """
    names = {device.name for device in devices}
    return [
        FigureNoise(
            test=each.test,
            figure=each.figure,
            unit=each.unit,
            setting=each.setting,
            usual=each.usual,
            between=each.repeat if each.joint or len(names) < 2 else max(each.between, each.repeat),
            repeat=each.repeat,
            joint=each.joint,
        )
        for each in figures
        if each.values.keys() == names and each.usual > 0
    ]


def list_ceilings(gate: Document, figures: Iterable[FigureScatter], table: ProductTable) -> tuple[Ceiling, ...]:
    """Figures with a physical limit or a row in the table; the limit is that of the last device."""
    if not gate.devices:
        return ()
    limits = derive_limits(gate.results, gate.devices[-1].name)
    found = []
    for each in figures:
        figure = Figure(name=each.figure, value=each.usual, unit=each.unit, setting=each.setting)
        limit, product = select_limit(each.test, figure, limits), find_product(table, each.product)
        row = find_product_row(product, each.test, figure) if product else None
        if limit is None and row is None:
            continue
        found.append(
            Ceiling(
                test=each.test,
                figure=each.figure,
                setting=each.setting,
                unit=each.unit,
                reached=each.usual,
                physical=limit.most if limit else 0.0,
                words=limit.words if limit else "",
                table_usual=row.usual if row else 0.0,
                table_peak=row.peak if row else 0.0,
            )
        )
    return tuple(found)


def collect_rounding(gates: Iterable[Document]) -> tuple[RoundingUse, ...]:
    """The largest share of each rounding limit that right products used."""
    shares: dict[tuple[str, str], dict[str, float]] = {}
    for document in gates:
        for result in document.results:
            text = str(result.evidence.get(ROUNDING, "")) if result.outcome is Outcome.PASS else ""
            for words, _, share in (each.rpartition(": ") for each in text.split(", ") if each):
                kind, size, judge = words.split(" ", 2)
                of_device = shares.setdefault((f"{kind} {size}", judge), {})
                of_device[result.device] = max(float(share), of_device.get(result.device, 0.0))
    return tuple(
        RoundingUse(setting=setting, judge=judge, share=max(each.values()), devices=len(each))
        for (setting, judge), each in sorted(shares.items())
    )


def collect_goldens(gates: Sequence[Document]) -> dict[str, dict[str, str]]:
    """The digests that all devices computed alike in all passed gates."""
    return record_goldens([each for each in gates if each.verdict is Verdict.PASS], {}, devices_min=1).goldens


def judge_faults(inject: Sequence[str], document: Document) -> tuple[FaultReport, ...]:
    """What the tests of one run concluded on its injected faults."""
    names = [device.name for device in document.devices]
    return tuple(_judge_fault(word, document, names) for word in inject)


def _judge_fault(word: str, document: Document, names: Sequence[str]) -> FaultReport:
    test, _, fault = word.partition(":")
    target = find_target(test, names)
    results = [result for result in document.results if result.test == test]
    outcome = _find_worst_outcome(results)
    worst = [result for result in results if result.outcome is outcome]
    found = outcome in _ACCUSING or any(result.misconfigured for result in worst)
    accused = tuple(dict.fromkeys(result.device for result in worst if result.device)) if found else ()
    return FaultReport(
        test=test,
        fault=fault,
        level=document.level,
        device=target,
        outcome=outcome,
        accused=accused,
        found=found,
        right_device=accused == (target,) if found and target else None,
        reason=next((result.reason for result in worst if result.reason), ""),
    )


def _find_worst_outcome(results: Sequence[Result]) -> Outcome:
    outcomes = {result.outcome for result in results}
    order = (*_ACCUSING, Outcome.NOT_RUN, Outcome.PASS, Outcome.NOT_APPLICABLE)
    return next((each for each in order if each in outcomes), Outcome.NOT_RUN)


def collect_facts(document: Document) -> dict[str, object]:
    """The node's versions and settings, as the test `software` compares them."""
    told = next((result.evidence for result in document.results if result.test == "software"), {})
    return dict(told)
