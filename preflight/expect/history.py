"""What this very device reached in earlier passes with the same software. Pure. A hint, never a judge: it knows one device only."""

from __future__ import annotations

import statistics
from collections.abc import Sequence

import msgspec

from preflight.checks.context import Device
from preflight.expect.bounds import Bound, Word, behind, bound, named
from preflight.expect.figures import Key, readings, said, stack
from preflight.results import Document, Figure, Outcome, Source

RUNS_MIN = 3
FIRST_KEPT = 8  # kept for ever, so that slow decay has something to be measured by
LAST_KEPT = 8
PASTS_KEPT = 4096  # a node of 8 GPUs has some hundreds; the oldest go when parts are replaced
WARN_SHARE = 0.05
FAIL_SHARE = 0.10


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of one device; `device` is its UUID, or its name where it has none. `at` is the newest run, UTC seconds.

    `software` is what it ran then; with another everything begins anew.
    """

    device: str
    product: str
    test: str
    figure: str
    setting: str
    unit: str
    software: str = ""
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

    def __init__(self, history: History, devices: Sequence[Device], software: str) -> None:
        self._pasts = {_place(past): past for past in history.pasts if past.software == software}
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
        return (
            Bound(expectation=expectation, usual=usual, witnesses=len(values), word=Word.HINT) if expectation else None
        )


def remark(figure: Figure, own: Bound) -> str:
    """Drift that fails nothing yet; empty if there is none."""
    share = behind(figure, own.usual)
    if share < WARN_SHARE:
        return ""
    return (
        f"{named(figure)}, {share:.1%} worse than this device's own {own.witnesses} earlier passes, {said(own.usual)}"
    )


def record(history: History, run: Document) -> History:
    """`history` with a run that passed. One of another node is begun anew; a run that isn't newer changes nothing."""
    if history.node != run.node:
        history = History(node=run.node)
    pasts = {_place(past): past for past in history.pasts}
    ids = _ids(run.devices)
    taken: dict[tuple[str, Key], tuple[str, list[float]]] = {}
    for key, device, figure in readings([r for r in run.results if r.outcome is Outcome.PASS], run.devices):
        taken.setdefault((ids.get(device, device), key), (figure.unit, []))[1].append(figure.value)
    for (device, key), (unit, values) in taken.items():
        now = Past(
            device=device,
            product=key.product,
            test=key.test,
            figure=key.figure,
            setting=key.setting,
            unit=unit,
            software=stack(run.software),
            at=run.started_at,
            first=(statistics.median(values),),
        )
        pasts[device, key] = _grown(pasts.get((device, key)), now)
    newest = sorted(pasts.values(), key=lambda past: (-past.at, _place(past)))[:PASTS_KEPT]
    return History(node=run.node, pasts=tuple(sorted(newest, key=_place)))


def _grown(past: Past | None, now: Past) -> Past:
    if past is None or (past.unit, past.software) != (now.unit, now.software):
        return now
    if now.at <= past.at:
        return past
    if len(past.first) < FIRST_KEPT:
        return msgspec.structs.replace(past, at=now.at, first=past.first + now.first)
    return msgspec.structs.replace(past, at=now.at, last=(past.last + now.first)[-LAST_KEPT:])


def _place(past: Past) -> tuple[str, Key]:
    return past.device, Key(past.product, past.test, past.figure, past.setting)


def _ids(devices: Sequence[Device]) -> dict[str, str]:
    return {d.name: d.uuid or d.name for d in devices}
