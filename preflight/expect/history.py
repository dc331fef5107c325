"""What this very device reached in earlier passes. Pure. A second witness, never a judge: a slow start would excuse a slow device."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from preflight.checks.context import Device
from preflight.expect.bounds import Bound, behind, bound, named
from preflight.expect.figures import Key, readings, said
from preflight.results import Figure, Outcome, Result, Source

RUNS_MIN = 3
FIRST_KEPT = 8  # kept for ever, so that slow decay has something to be measured by
LAST_KEPT = 8
PASTS_KEPT = 4096  # a node of 8 GPUs has some hundreds; the oldest go when parts are replaced
WARN_SHARE = 0.05
FAIL_SHARE = 0.10


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of one device; `device` is its UUID, or its name where it has none. `at` is the newest run, UTC seconds."""

    device: str
    product: str
    test: str
    figure: str
    setting: str
    unit: str
    at: float
    first: tuple[float, ...]
    last: tuple[float, ...] = ()


class History(msgspec.Struct, frozen=True, kw_only=True):
    """All of one node."""

    version: int = 1
    node: str = ""
    pasts: tuple[Past, ...] = ()


class OwnPast:
    """What this node's devices reached before."""

    def __init__(self, history: History, devices: Sequence[Device]) -> None:
        self._pasts = {_place(past): past for past in history.pasts}
        self._ids = _ids(devices)

    def bound(self, key: Key, device: str, figure: Figure) -> Bound | None:
        """What the device itself reached in at least three earlier runs."""
        past = self._pasts.get((self._ids.get(device, device), key))
        if past is None or past.unit != figure.unit or len(past.first) < RUNS_MIN:
            return None
        values = past.first + past.last
        usual = statistics.median(values)
        words = f"{FAIL_SHARE:.0%} worse than the median of its own {len(values)} passes, {said(usual)}"
        expectation = bound(figure, Source.HISTORY, usual, FAIL_SHARE, words)
        return Bound(expectation=expectation, usual=usual, witnesses=len(values)) if expectation else None


def remark(figure: Figure, own: Bound) -> str:
    """Drift that fails nothing yet; empty if there is none."""
    share = behind(figure, own.usual)
    if share < WARN_SHARE:
        return ""
    return (
        f"{named(figure)}, {share:.1%} worse than this device's own {own.witnesses} earlier passes, {said(own.usual)}"
    )


def record(history: History, results: Sequence[Result], devices: Sequence[Device], node: str, at: float) -> History:
    """`history` with a run that passed. A history of another node is begun anew; a run that isn't newer changes nothing."""
    if history.node != node:
        history = History(node=node)
    pasts = {_place(past): past for past in history.pasts}
    ids = _ids(devices)
    taken: dict[tuple[str, Key], tuple[str, list[float]]] = {}
    for key, device, figure in readings([r for r in results if r.outcome is Outcome.PASS], devices):
        taken.setdefault((ids.get(device, device), key), (figure.unit, []))[1].append(figure.value)
    for place, (unit, values) in taken.items():
        pasts[place] = _grown(pasts.get(place), place, unit, statistics.median(values), at)
    newest = sorted(pasts.values(), key=lambda past: (-past.at, _place(past)))[:PASTS_KEPT]
    return History(node=node, pasts=tuple(sorted(newest, key=_place)))


def _grown(past: Past | None, place: tuple[str, Key], unit: str, value: float, at: float) -> Past:
    device, key = place
    if past is None or past.unit != unit:
        return Past(
            device=device,
            product=key.product,
            test=key.test,
            figure=key.figure,
            setting=key.setting,
            unit=unit,
            at=at,
            first=(value,),
        )
    if at <= past.at:
        return past
    if len(past.first) < FIRST_KEPT:
        return msgspec.structs.replace(past, at=at, first=(*past.first, value))
    return msgspec.structs.replace(past, at=at, last=(*past.last, value)[-LAST_KEPT:])


def _place(past: Past) -> tuple[str, Key]:
    return past.device, Key(past.product, past.test, past.figure, past.setting)


def _ids(devices: Sequence[Device]) -> dict[str, str]:
    return {d.name: d.uuid or d.name for d in devices}
