"""Adds expectations to every measured figure; a pass that misses them becomes a failure. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from preflight.check_context import Device
from preflight.expectations import device_history, physical_limits, product_table, sibling_devices
from preflight.expectations.bounds import SourceBound, describe_figure, misses_bound
from preflight.expectations.device_history import DeviceHistory, History
from preflight.expectations.fleet_baseline import Baseline, FleetComparison
from preflight.expectations.machine_identity import list_device_uuids
from preflight.expectations.measurement_keys import (
    MeasurementKey,
    explain_impossible_value,
    format_value,
    iterate_readings,
)
from preflight.expectations.measurement_keys import map_device_products as products_of
from preflight.expectations.physical_limits import PhysicalLimit
from preflight.expectations.product_table import Product, ProductTable
from preflight.expectations.sibling_devices import SiblingReadings
from preflight.expectations.source_precedence import UNMEASURED, FigureRuling, weigh_bounds
from preflight.results import Figure, Outcome, Result, Source


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """All expectation data. `node` is the judged node, `software` its versions; `remarks` name unreadable files."""

    node: str = ""
    software: str = ""
    table: ProductTable = ProductTable()
    baseline: Baseline = Baseline()
    history: History = History()
    remarks: tuple[str, ...] = ()


def apply_expectations(
    results: Sequence[Result], devices: Sequence[Device], knowledge: Knowledge
) -> tuple[Result, ...]:
    """`results` with expectations, margins and remarks; a PASS becomes FAIL or ERROR if its figures require it.

    Other outcomes stay. The worst figure decides, and the reason names each wrong one.
    """
    scene = _JudgementContext(results, devices, knowledge)
    return tuple(scene.judged(result) for result in results)


class _JudgementContext:
    """All data that the figures of one run are compared with."""

    def __init__(self, results: Sequence[Result], devices: Sequence[Device], knowledge: Knowledge) -> None:
        self._siblings = SiblingReadings(iterate_readings(results, devices))
        self._fleet = FleetComparison(
            knowledge.baseline, knowledge.node, knowledge.software, list_device_uuids(devices)
        )
        self._past = DeviceHistory(knowledge.history, knowledge.node, devices, knowledge.software)
        self._product = products_of(devices)
        self._on_host = {d.name for d in devices if d.on_host}
        self._measured = {product: self._fleet.has_measured(product) for product in set(self._product.values())}
        self._limits = {d.name: physical_limits.derive_limits(results, d.name) for d in devices}
        self._rows: dict[str, Product | None] = {
            d.name: product_table.find_product(knowledge.table, d.product) for d in devices if d.product
        }

    def judged(self, result: Result) -> Result:
        rulings = [self._ruling(result, figure) for figure in result.figures]
        judged = msgspec.structs.replace(
            result,
            figures=tuple(
                ruling.figure for ruling in rulings if math.isfinite(ruling.figure.value)
            ),  # JSON objects have no other keys
            remarks=result.remarks + tuple(remark for ruling in rulings for remark in ruling.remarks),
        )
        if result.outcome is Outcome.FAIL and result.by_limit and not self._is_measured(result.device):
            return msgspec.structs.replace(judged, outcome=Outcome.ERROR, reason=f"{result.reason}. {UNMEASURED}")
        if result.outcome is not Outcome.PASS:
            return judged
        for outcome in (Outcome.FAIL, Outcome.ERROR):
            if reasons := [ruling.reason for ruling in rulings if ruling.outcome is outcome]:
                reason = "; ".join(dict.fromkeys(reasons))
                return msgspec.structs.replace(judged, outcome=outcome, reason=reason, by_limit=True)
        return judged

    def _is_measured(self, device: str) -> bool:
        """Whether limits may fail this device; on the host, where limits are wide and tests run, they may."""
        return device in self._on_host or self._measured.get(self._product.get(device, ""), False)

    def _ruling(self, result: Result, figure: Figure) -> FigureRuling:
        if why := explain_impossible_value(figure):
            return FigureRuling(figure=figure, outcome=Outcome.ERROR, reason=why)
        key = MeasurementKey(self._product.get(result.device, ""), result.test, figure.name, figure.setting)
        limit = physical_limits.select_limit(result.test, figure, self._limits.get(result.device, {}))
        if limit and physical_limits.exceeds_limit(figure, limit.most):
            why = f"{describe_figure(figure)}, more than {limit.words} can carry: the test's clock or count is wrong"
            return FigureRuling(figure=figure, outcome=Outcome.ERROR, reason=why)
        bounds = self._bounds(result, figure, key, limit)
        if why := self._beyond_peak(result, figure, bounds):
            return FigureRuling(figure=figure, outcome=Outcome.ERROR, reason=why)
        joint = self._siblings.find_joint_value(key)
        value = figure.value if joint is None else joint
        ruling = weigh_bounds(
            msgspec.structs.replace(figure, value=value), bounds, measured=self._is_measured(result.device)
        )
        ruled = msgspec.structs.replace(ruling.figure, value=figure.value)
        return msgspec.structs.replace(ruling, figure=ruled, remarks=ruling.remarks + _build_remarks(figure, bounds))

    def _bounds(
        self, result: Result, figure: Figure, key: MeasurementKey, limit: PhysicalLimit | None
    ) -> Mapping[Source, SourceBound]:
        product = self._rows.get(result.device)
        row = product_table.find_product_row(product, result.test, figure) if product else None
        found = {
            Source.PHYSICAL: physical_limits.build_physical_bound(result.test, limit) if limit else None,
            Source.SKU: product_table.build_product_bound(product, row) if product and row else None,
            Source.SIBLINGS: self._siblings.bound(key, result.device, figure, self._fleet.scatter(key, figure)),
            Source.FLEET: self._fleet.bound(key, figure),
            Source.HISTORY: self._past.bound(key, result.device, figure),
        }
        return {source: bound for source, bound in found.items() if bound}

    def _beyond_peak(self, result: Result, figure: Figure, bounds: Mapping[Source, SourceBound]) -> str:
        """Why a rate above the manufacturer's maximum is not a measurement; empty if it is not, or the fleet reaches it too."""
        product = self._rows.get(result.device)
        row = product_table.find_product_row(product, result.test, figure) if product else None
        if row is None or not row.peak or not physical_limits.exceeds_limit(figure, row.peak):
            return ""
        if Source.FLEET in bounds and bounds[Source.FLEET].usual > row.peak:
            return ""
        peak = f"{format_value(row.peak)} {row.unit}"
        return f"{describe_figure(figure)}, above the {peak} of the static table ({row.source}): the test or the table is wrong"


def _build_remarks(figure: Figure, bounds: Mapping[Source, SourceBound]) -> tuple[str, ...]:
    """Non-failing observations; a missed bound of siblings is already reported."""
    found = []
    if near := bounds.get(Source.SIBLINGS):
        spoken = near.expectation.fails and misses_bound(figure.value, near.expectation)
        found.append("" if spoken else sibling_devices.describe_sibling_gap(figure, near))
    if own := bounds.get(Source.HISTORY):
        found.append(device_history.describe_drift(figure, own))
    return tuple(filter(None, found))
