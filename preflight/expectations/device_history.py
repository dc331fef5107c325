"""This device's results in earlier passes with the same software. Pure. Only a hint, since it covers one device."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence

import msgspec

from preflight.check_context import Device
from preflight.expectations.bounds import (
    SourceBound,
    SourceWeight,
    build_expectation,
    compute_shortfall,
    describe_figure,
)
from preflight.expectations.measurement_keys import (
    AHEAD_S,
    MeasurementKey,
    describe_software_stack,
    format_value,
    iterate_readings,
)
from preflight.results import Document, Figure, Outcome, Source
from vocabulary.text.plurals import format_count

RUNS_MIN = 3
FIRST_KEPT = 8  # kept permanently, as a reference for slow degradation
LAST_KEPT = 8
PASTS_KEPT = 4096  # a node with 8 GPUs has some hundreds; the oldest are dropped after replacements
WARN_SHARE = 0.05
FAIL_SHARE = 0.10
_Place = tuple[str, str, MeasurementKey]


class MeasurementPast(msgspec.Struct, frozen=True, kw_only=True):
    """One measurement of one device; `device` is its UUID, or its name on `node` without one. `at` is the newest run, UTC seconds.

    `software` is the version at that time; the history restarts with another.
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
    """The history of one machine. `node` is its last name; the history of a device with a UUID is valid under every name."""

    version: int = 1
    node: str = ""
    pasts: tuple[MeasurementPast, ...] = ()


class DeviceHistory:
    """Earlier results of the devices of `node`."""

    def __init__(self, history: History, node: str, devices: Sequence[Device], software: str) -> None:
        self._pasts = {_build_past_key(past): past for past in history.pasts if past.software == software}
        self._node, self._ids = node, _map_uuids(devices)

    def bound(self, key: MeasurementKey, device: str, figure: Figure) -> SourceBound | None:
        """The device's own level in at least three earlier runs."""
        past = self._pasts.get((*_find_owner(device, self._node, self._ids), key))
        if past is None or past.unit != figure.unit or len(past.first) < RUNS_MIN:
            return None
        values = past.first + past.last
        usual = statistics.median(values)
        words = f"{FAIL_SHARE:.0%} worse than the median of its own {format_count(len(values), 'pass', 'passes')}, {format_value(usual)}"
        expectation = build_expectation(figure, Source.HISTORY, usual, FAIL_SHARE, words)
        return (
            SourceBound(expectation=expectation, usual=usual, witnesses=len(values), word=SourceWeight.HINT)
            if expectation
            else None
        )


def describe_drift(figure: Figure, own: SourceBound) -> str:
    """Drift that does not fail yet; empty if there is none."""
    share = compute_shortfall(figure, own.usual)
    if share < WARN_SHARE:
        return ""
    return f"{describe_figure(figure)}, {share:.1%} worse than this device's own {own.witnesses} earlier passes, {format_value(own.usual)}"


def record_run(history: History, run: Document) -> History:
    """`history` with a passed run that has just ended. A run that is not newer changes nothing.

    Data from more than a day after the run's end comes from a wrong clock, and stays as if it were old.
    """
    pasts = {_build_past_key(past): past for past in history.pasts}
    ids, latest = _map_uuids(run.devices), run.started_at + run.seconds + AHEAD_S
    taken: dict[_Place, tuple[str, list[float]]] = {}
    for key, device, figure in iterate_readings([r for r in run.results if r.outcome is Outcome.PASS], run.devices):
        taken.setdefault((*_find_owner(device, run.node, ids), key), (figure.unit, []))[1].append(figure.value)
    for (device, node, key), (unit, values) in taken.items():
        now = MeasurementPast(
            device=device,
            node=node,
            product=key.product,
            test=key.test,
            figure=key.figure,
            setting=key.setting,
            unit=unit,
            software=describe_software_stack(run.software),
            at=run.started_at,
            first=(statistics.median(values),),
        )
        pasts[device, node, key] = _extend_past(pasts.get((device, node, key)), now, latest)
    newest = sorted(pasts.values(), key=lambda past: (-min(past.at, latest), _build_past_key(past)))[:PASTS_KEPT]
    return History(node=run.node, pasts=tuple(sorted(newest, key=_build_past_key)))


def _extend_past(past: MeasurementPast | None, now: MeasurementPast, latest: float) -> MeasurementPast:
    if past is None or (past.unit, past.software) != (now.unit, now.software):
        return now
    if now.at <= past.at <= latest:
        return past
    if len(past.first) < FIRST_KEPT:
        return msgspec.structs.replace(past, at=now.at, first=past.first + now.first)
    return msgspec.structs.replace(past, at=now.at, last=(past.last + now.first)[-LAST_KEPT:])


def _build_past_key(past: MeasurementPast) -> _Place:
    return past.device, past.node, MeasurementKey(past.product, past.test, past.figure, past.setting)


def _find_owner(device: str, node: str, ids: Mapping[str, str]) -> tuple[str, str]:
    """The owner of the history: the device with this UUID, else the device with this name on the node."""
    return (ids[device], "") if device in ids else (device, node)


def _map_uuids(devices: Sequence[Device]) -> dict[str, str]:
    return {d.name: d.uuid for d in devices if d.uuid}
