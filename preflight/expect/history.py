"""What this very device reached in earlier passes with the same software. Pure. A hint, never a judge: it knows one device only."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from preflight.checks.context import Device
from preflight.expect.bounds import Bound, Word, behind, bound, named
from preflight.expect.figures import AHEAD_S, Key, readings, said, stack
from preflight.results import Document, Figure, Outcome, Source
from vocabulary.counts import counted

RUNS_MIN = 3
FIRST_KEPT = 8  # kept for ever, so that slow decay has something to be measured by
LAST_KEPT = 8
PASTS_KEPT = 4096  # a node of 8 GPUs has some hundreds; the oldest go when parts are replaced
WARN_SHARE = 0.05
FAIL_SHARE = 0.10
_Place = tuple[str, str, Key]


class Past(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of one device; `device` is its UUID, or its name on `node` where it has none. `at` is the newest run, UTC seconds.

    `software` is what it ran then; with another everything begins anew.
    """

    device: str
    node: str = ""
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
    """All of one machine. `node` is what it was called last; the past of a device with a UUID is its own under every name."""

    version: int = 1
    node: str = ""
    pasts: tuple[Past, ...] = ()


class OwnPast:
    """What the devices of `node` reached before."""

    def __init__(self, history: History, node: str, devices: Sequence[Device], software: str) -> None:
        self._pasts = {_place(past): past for past in history.pasts if past.software == software}
        self._node, self._ids = node, _ids(devices)

    def bound(self, key: Key, device: str, figure: Figure) -> Bound | None:
        """What the device itself reached in at least three earlier runs."""
        past = self._pasts.get((*_owner(device, self._node, self._ids), key))
        if past is None or past.unit != figure.unit or len(past.first) < RUNS_MIN:
            return None
        values = past.first + past.last
        usual = statistics.median(values)
        words = (
            f"{FAIL_SHARE:.0%} worse than the median of its own {counted(len(values), 'pass', 'passes')}, {said(usual)}"
        )
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
    """`history` with a run that passed and has just ended. One that isn't newer changes nothing.

    What is kept from more than a day after the run's end is from a clock that was wrong, and stays as if it were old.
    """
    pasts = {_place(past): past for past in history.pasts}
    ids, latest = _ids(run.devices), run.started_at + run.seconds + AHEAD_S
    taken: dict[_Place, tuple[str, list[float]]] = {}
    for key, device, figure in readings([r for r in run.results if r.outcome is Outcome.PASS], run.devices):
        taken.setdefault((*_owner(device, run.node, ids), key), (figure.unit, []))[1].append(figure.value)
    for (device, node, key), (unit, values) in taken.items():
        now = Past(
            device=device,
            node=node,
            product=key.product,
            test=key.test,
            figure=key.figure,
            setting=key.setting,
            unit=unit,
            software=stack(run.software),
            at=run.started_at,
            first=(statistics.median(values),),
        )
        pasts[device, node, key] = _grown(pasts.get((device, node, key)), now, latest)
    newest = sorted(pasts.values(), key=lambda past: (-min(past.at, latest), _place(past)))[:PASTS_KEPT]
    return History(node=run.node, pasts=tuple(sorted(newest, key=_place)))


def _grown(past: Past | None, now: Past, latest: float) -> Past:
    if past is None or (past.unit, past.software) != (now.unit, now.software):
        return now
    if now.at <= past.at <= latest:
        return past
    if len(past.first) < FIRST_KEPT:
        return msgspec.structs.replace(past, at=now.at, first=past.first + now.first)
    return msgspec.structs.replace(past, at=now.at, last=(past.last + now.first)[-LAST_KEPT:])


def _place(past: Past) -> _Place:
    return past.device, past.node, Key(past.product, past.test, past.figure, past.setting)


def _owner(device: str, node: str, ids: Mapping[str, str]) -> tuple[str, str]:
    """Whose past it is: of the device that has this UUID, else of whatever has this name on the node."""
    return (ids[device], "") if device in ids else (device, node)


def _ids(devices: Sequence[Device]) -> dict[str, str]:
    return {d.name: d.uuid for d in devices if d.uuid}
