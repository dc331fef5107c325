"""Updates a baseline from documents. Pure. Only full passes without injected faults count; a later failure removes a node's data."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping

import msgspec

from preflight.expectations.fleet_baseline import DRIFT_IN_ALL, Baseline, BaselineEntry, NodeObservation, compute_level
from preflight.expectations.machine_identity import KnownMachine, MachineRegistry, list_device_uuids
from preflight.expectations.measurement_keys import (
    AHEAD_S,
    MeasurementKey,
    describe_software_stack,
    format_value,
    iterate_readings,
)
from preflight.results import Document, Outcome, Verdict

NODES_KEPT = 128  # per entry, the newest; more do not improve a median
SOFTWARE_KEPT = 3  # per measurement, during an upgrade of a cluster
MACHINES_KEPT = 16_384
_Place = tuple[MeasurementKey, str]


def explain_refusal(document: Document, now: float = math.inf) -> str:
    """Why a document does not count; empty if it does. `now` is UTC seconds."""
    if document.verdict is not Verdict.PASS:
        return f"{document.node}: the verdict is {document.verdict.value}; only a pass is learned"
    if not document.complete:
        return f"{document.node}: tests were left out, so the pass is incomplete"
    return _explain_unusable(document, now)


def _explain_unusable(document: Document, now: float) -> str:
    if document.injected:
        return f"{document.node}: a fault was injected ({', '.join(document.injected)})"
    if not document.node:
        return "a document without a node's name"
    if (ahead := document.started_at - now) > AHEAD_S:
        return f"{document.node}: the run began {ahead / 3600:.0f} h ahead of this clock; set the node's clock and run again"
    return ""


def learn_baseline(
    documents: Iterable[Document], old: Baseline | None = None, *, now: float = math.inf, accept: bool = False
) -> Baseline:
    """`old` updated with `documents`, in any order; without new data it is unchanged.

    A failure removes the node's earlier data. `now` is UTC seconds: stored data from more than a day ahead is replaced.
    `accept` moves the levels of the given documents to the current values without limit, on an operator's request.
    """
    lesson = _LearningPass(old or Baseline(), now)
    for document in sorted((d for d in documents if not _explain_unusable(d, now)), key=_document_sort_key):
        if document.verdict is Verdict.FAIL:
            lesson.fail(document)
        elif not explain_refusal(document, now):
            lesson.teach(document)
    return lesson.learned(accept=accept)


def explain_outdated(baseline: Baseline, document: Document) -> str:
    """Why an acceptable document contributed nothing: its node failed later; else empty."""
    names = {document.node, *MachineRegistry(baseline.machines).names(list_device_uuids(document.devices))}
    failed = max((machine.failed for name, machine in baseline.machines.items() if name in names), default=0.0)
    if failed and document.started_at <= failed:
        return f"{document.node}: it failed in a later run"
    return ""


def forget_node(baseline: Baseline, node: str) -> Baseline:
    """The baseline without the data of `node`; unchanged if unknown."""
    entries = tuple(
        msgspec.structs.replace(entry, nodes={name: seen for name, seen in entry.nodes.items() if name != node})
        for entry in baseline.entries
    )
    machines = {name: machine for name, machine in baseline.machines.items() if name != node}
    return msgspec.structs.replace(baseline, entries=tuple(filter(_is_informative, entries)), machines=machines)


def list_held_levels(baseline: Baseline) -> list[str]:
    """Levels that differ from their nodes' current values, one sentence each, for an operator's decision."""
    found = []
    for entry in baseline.entries:
        at = compute_level(entry)
        if at and at.held:
            why = (
                f"more than {DRIFT_IN_ALL:.0%} from its first value; if that is right, learn with --accept"
                if _exceeds_drift(at.held, entry.first)
                else "it moves further at the next learning"
            )
            found.append(
                f"{entry.product}: {entry.key}: {at.nodes} nodes reach {format_value(at.held)} {entry.unit}, "
                f"the baseline stays at {format_value(at.usual)}: {why}"
            )
    return found


def list_moved_levels(old: Baseline, new: Baseline) -> list[str]:
    """Levels that moved, one sentence each."""
    before = {_build_entry_key(entry): at.usual for entry in old.entries if (at := compute_level(entry))}
    return [
        f"{entry.product}: {entry.key}: from {format_value(was)} to {format_value(at.usual)} {entry.unit}"
        for entry in new.entries
        if (at := compute_level(entry)) and (was := before.get(_build_entry_key(entry))) is not None and was != at.usual
    ]


class _LearningPass:
    """Processes documents, oldest first."""

    def __init__(self, old: Baseline, now: float) -> None:
        self._entries = {_build_entry_key(entry): entry for entry in old.entries}
        self._nodes = {place: dict(entry.nodes) for place, entry in self._entries.items()}
        self._units: dict[_Place, str] = {}  # of the updated places
        self._roll = MachineRegistry(old.machines)
        self._latest = now + AHEAD_S

    def teach(self, document: Document) -> None:
        measured = _collect_measurements(document)
        if not measured:
            return
        name = self._called(document)
        failed = self._roll.machines[name].failed
        if failed and document.started_at <= self._when(failed):
            return
        for key, (unit, values) in measured.items():
            place = key, describe_software_stack(document.software)
            if place not in self._units:
                self._units[place] = unit
                known = self._entries.get(place)
                if known is None or known.unit != unit:
                    product, test, figure, setting = key
                    self._entries[place] = BaselineEntry(
                        product=product,
                        test=test,
                        figure=figure,
                        setting=setting,
                        unit=unit,
                        software=place[1],
                        nodes={},
                    )
                    self._nodes[place] = {}
            if self._units[place] == unit:
                self._see(place, name, NodeObservation(document.started_at, values))

    def fail(self, document: Document) -> None:
        """Remove the node's earlier data, under all its names."""
        name = self._called(document)
        machine = self._roll.machines[name]
        failed = max(self._when(machine.failed), document.started_at)
        self._roll.put(name, msgspec.structs.replace(machine, failed=failed))
        for nodes in self._nodes.values():
            if name in nodes and self._when(nodes[name].at) <= failed:
                del nodes[name]

    def learned(self, *, accept: bool) -> Baseline:
        entries = {place: self._entry(place) for place in self._entries}
        if accept:
            entries |= {place: _accept_level(entries[place]) for place in self._units}
        machines = self._roll.machines
        newest = sorted(machines, key=lambda name: (-max(machines[name].at, machines[name].failed), name))
        return Baseline(
            entries=tuple(entries[place] for place in self._kept(entries) if _is_informative(entries[place])),
            machines={name: machines[name] for name in sorted(newest[:MACHINES_KEPT])},
        )

    def _called(self, document: Document) -> str:
        """The last name of this document's node. Data under its other names moves to it."""
        at, devices = document.started_at, list_device_uuids(document.devices)
        machines = self._roll.machines
        others = [name for name in self._roll.names(devices) if name != document.node]
        for name in others:
            if (at, document.node) < (self._when(machines[name].at), name):
                return name
        known = machines.get(document.node)
        if known is None or at > self._when(known.at):
            known = KnownMachine(at=at, failed=known.failed if known else 0.0, devices=devices)
        failed = known.failed
        for name in others:
            gone = self._roll.drop(name)
            failed = max(failed, gone.failed if gone else 0.0)
            for place, nodes in self._nodes.items():
                if name in nodes:
                    self._see(place, document.node, nodes.pop(name))
        self._roll.put(document.node, msgspec.structs.replace(known, failed=failed))
        return document.node

    def _see(self, place: _Place, name: str, seen: NodeObservation) -> None:
        nodes = self._nodes[place]
        if name not in nodes or self._when(nodes[name].at) < seen.at:
            nodes[name] = seen

    def _when(self, at: float) -> float:
        """A stored time; one too far ahead counts as the oldest."""
        return at if at <= self._latest else -math.inf

    def _entry(self, place: _Place) -> BaselineEntry:
        entry, nodes = self._entries[place], self._nodes[place]
        if nodes == entry.nodes:
            return entry
        was = compute_level(entry)
        newest = sorted(nodes.items(), key=lambda item: (-self._when(item[1].at), item[0]))[:NODES_KEPT]
        entry = msgspec.structs.replace(entry, nodes=dict(sorted(newest)), before=was.usual if was else entry.before)
        now = compute_level(entry)
        return entry if entry.first or now is None else msgspec.structs.replace(entry, first=now.usual)

    def _kept(self, entries: Mapping[_Place, BaselineEntry]) -> list[_Place]:
        """In order; per measurement only the newest software versions, as data of unused ones is irrelevant."""

        def newest(place: _Place) -> float:
            return max((self._when(seen.at) for seen in entries[place].nodes.values()), default=-math.inf)

        kept: dict[MeasurementKey, list[_Place]] = {}
        for place in sorted(entries, key=lambda place: (-newest(place), place)):
            kept.setdefault(place[0], []).append(place)
        return sorted(place for places in kept.values() for place in places[:SOFTWARE_KEPT])


def _build_entry_key(entry: BaselineEntry) -> _Place:
    return entry.key, entry.software


def _is_informative(entry: BaselineEntry) -> bool:
    """Whether to keep an entry: it has nodes, or an initial level, which must survive a failing fleet."""
    return bool(entry.nodes) or entry.first > 0


def _document_sort_key(document: Document) -> tuple[float, str, bytes]:
    """Oldest first; ties in a fixed order."""
    return document.started_at, document.node, msgspec.json.encode(document)


def _collect_measurements(document: Document) -> dict[MeasurementKey, tuple[str, tuple[float, ...]]]:
    found: dict[MeasurementKey, tuple[str, list[float]]] = {}
    passed = [result for result in document.results if result.outcome is Outcome.PASS]
    for key, _, figure in iterate_readings(passed, document.devices):
        unit, values = found.setdefault(key, (figure.unit, []))
        if key.product and unit == figure.unit:
            values.append(figure.value)
    return {key: (unit, tuple(sorted(values))) for key, (unit, values) in found.items() if values}


def _accept_level(entry: BaselineEntry) -> BaselineEntry:
    free = msgspec.structs.replace(entry, before=0.0, first=0.0)
    now = compute_level(free)
    return msgspec.structs.replace(free, first=now.usual) if now else free


def _exceeds_drift(value: float, first: float) -> bool:
    return first > 0 and abs(value / first - 1) > DRIFT_IN_ALL
