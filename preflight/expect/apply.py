"""Measured results in, judged results out: every figure gets what is expected of it, and a pass that misses it is none. Pure."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import msgspec

from preflight.checks.context import Device
from preflight.expect import history, physical, products, siblings
from preflight.expect.bounds import Bound, misses, named
from preflight.expect.figures import Key, nonsense, readings, said
from preflight.expect.figures import products as products_of
from preflight.expect.fleet import Baseline, Fleet
from preflight.expect.history import History, OwnPast
from preflight.expect.machines import uuids
from preflight.expect.physical import Limit
from preflight.expect.products import Product, Table
from preflight.expect.siblings import Siblings
from preflight.expect.weigh import Ruling, weigh
from preflight.results import Figure, Outcome, Result, Source


class Knowledge(msgspec.Struct, frozen=True, kw_only=True):
    """What is known beside this run. `node` is who is judged, `software` what it runs; `remarks` say what could not be read."""

    node: str = ""
    software: str = ""
    table: Table = Table()
    baseline: Baseline = Baseline()
    history: History = History()
    remarks: tuple[str, ...] = ()


def expected(results: Sequence[Result], devices: Sequence[Device], knowledge: Knowledge) -> tuple[Result, ...]:
    """`results` with expectations, margins and remarks; a PASS becomes FAIL or ERROR where its figures say so.

    A result that is no PASS keeps its outcome: it is judged already. Of several figures the worst decides, and each that is
    wrong is in the reason.
    """
    scene = _Scene(results, devices, knowledge)
    judged = [scene.judged(result) for result in results]
    for index, result in enumerate(judged):
        if result.figures and knowledge.remarks:
            judged[index] = msgspec.structs.replace(result, remarks=result.remarks + knowledge.remarks)
            break
    return tuple(judged)


class _Scene:
    """All that the figures of one run are compared with."""

    def __init__(self, results: Sequence[Result], devices: Sequence[Device], knowledge: Knowledge) -> None:
        self._siblings = Siblings(readings(results, devices))
        self._fleet = Fleet(knowledge.baseline, knowledge.node, knowledge.software, uuids(devices))
        self._past = OwnPast(knowledge.history, knowledge.node, devices, knowledge.software)
        self._product = products_of(devices)
        self._limits = {d.name: physical.limits(results, d.name) for d in devices}
        self._rows: dict[str, Product | None] = {
            d.name: products.product_of(knowledge.table, d.product) for d in devices if d.product
        }

    def judged(self, result: Result) -> Result:
        rulings = [self._ruling(result, figure) for figure in result.figures]
        judged = msgspec.structs.replace(
            result,
            figures=tuple(
                ruling.figure for ruling in rulings if math.isfinite(ruling.figure.value)
            ),  # JSON has no other
            remarks=result.remarks + tuple(remark for ruling in rulings for remark in ruling.remarks),
        )
        if result.outcome is not Outcome.PASS:
            return judged
        for outcome in (Outcome.FAIL, Outcome.ERROR):
            if reasons := [ruling.reason for ruling in rulings if ruling.outcome is outcome]:
                return msgspec.structs.replace(judged, outcome=outcome, reason="; ".join(dict.fromkeys(reasons)))
        return judged

    def _ruling(self, result: Result, figure: Figure) -> Ruling:
        if why := nonsense(figure):
            return Ruling(figure=figure, outcome=Outcome.ERROR, reason=why)
        key = Key(self._product.get(result.device, ""), result.test, figure.name, figure.setting)
        limit = physical.limit_of(result.test, figure, self._limits.get(result.device, {}))
        if limit and physical.lies(figure, limit.most):
            why = f"{named(figure)}, more than {limit.words} can carry: the clock or the count of the test is wrong"
            return Ruling(figure=figure, outcome=Outcome.ERROR, reason=why)
        bounds = self._bounds(result, figure, key, limit)
        if why := self._beyond_peak(result, figure, bounds):
            return Ruling(figure=figure, outcome=Outcome.ERROR, reason=why)
        ruling = weigh(figure, bounds)
        return msgspec.structs.replace(ruling, remarks=ruling.remarks + _remarks(figure, bounds))

    def _bounds(self, result: Result, figure: Figure, key: Key, limit: Limit | None) -> Mapping[Source, Bound]:
        product = self._rows.get(result.device)
        row = products.row_of(product, result.test, figure) if product else None
        found = {
            Source.PHYSICAL: physical.bound(result.test, limit) if limit else None,
            Source.SKU: products.bound(product, row) if product and row else None,
            Source.SIBLINGS: self._siblings.bound(key, result.device, figure, self._fleet.scatter(key, figure)),
            Source.FLEET: self._fleet.bound(key, figure),
            Source.HISTORY: self._past.bound(key, result.device, figure),
        }
        return {source: bound for source, bound in found.items() if bound}

    def _beyond_peak(self, result: Result, figure: Figure, bounds: Mapping[Source, Bound]) -> str:
        """Why a rate above what the maker promises measures nothing; empty if it isn't, or the fleet does the same."""
        product = self._rows.get(result.device)
        row = products.row_of(product, result.test, figure) if product else None
        if row is None or not row.peak or not physical.lies(figure, row.peak):
            return ""
        if Source.FLEET in bounds and bounds[Source.FLEET].usual > row.peak:
            return ""
        peak = f"{said(row.peak)} {row.unit}"
        return f"{named(figure)}, above the {peak} of the static table ({row.source}): the test or the table is wrong"


def _remarks(figure: Figure, bounds: Mapping[Source, Bound]) -> tuple[str, ...]:
    """What fails nothing and is worth saying; a bound of siblings that is missed has been spoken of."""
    found = []
    if near := bounds.get(Source.SIBLINGS):
        spoken = near.expectation.fails and misses(figure.value, near.expectation)
        found.append("" if spoken else siblings.remark(figure, near))
    if own := bounds.get(Source.HISTORY):
        found.append(history.remark(figure, own))
    return tuple(filter(None, found))
