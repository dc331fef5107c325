"""From documents to a baseline. Pure. Only what passed whole, with nothing injected, teaches."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from preflight.expect.figures import Key, readings, said, stack
from preflight.expect.fleet import DRIFT_IN_ALL, Baseline, Entry, Seen, level
from preflight.results import Document, Outcome, Verdict

NODES_KEPT = 128  # of each entry, the newest; more make no median better
SOFTWARE_KEPT = 3  # of each measurement, while a cluster is upgraded
_Place = tuple[Key, str]


def refusal(document: Document) -> str:
    """Why a document teaches nothing; empty if it does."""
    if document.verdict is not Verdict.PASS:
        return f"{document.node}: the verdict is {document.verdict.value}; only a pass teaches"
    if document.injected:
        return f"{document.node}: a fault was injected ({', '.join(document.injected)})"
    if not document.complete:
        return f"{document.node}: tests were left out, so the pass speaks for some only"
    if not document.node:
        return "a document without a node's name"
    return ""


def learn(documents: Iterable[Document], old: Baseline | None = None, *, accept: bool = False) -> Baseline:
    """`old` with what `documents` add. Their order doesn't matter; nothing new leaves it as it is.

    `accept` lets levels go to where the nodes are now, however far that is: for a person who knows why.
    """
    old = old or Baseline()
    taught: dict[_Place, dict[str, Seen]] = {}
    units: dict[_Place, str] = {}
    for document in sorted((d for d in documents if not refusal(d)), key=_age):
        for key, (unit, values) in _measured(document).items():
            place = key, stack(document.software)
            if units.setdefault(place, unit) == unit:
                taught.setdefault(place, {})[document.node] = Seen(document.started_at, values)
    entries = {(entry.key, entry.software): entry for entry in old.entries}
    for place, nodes in taught.items():
        entries[place] = _with(entries.get(place), place, units[place], nodes)
    if accept:
        entries = {place: _accepted(entry) for place, entry in entries.items()}
    return Baseline(entries=tuple(entries[place] for place in _kept(entries)))


def _kept(entries: Mapping[_Place, Entry]) -> list[_Place]:
    """In order; of one measurement only those of the newest software, as an upgrade that nobody has any more says nothing."""
    newest = sorted(entries, key=lambda place: (-max(seen.at for seen in entries[place].nodes.values()), place))
    kept: dict[Key, list[_Place]] = {}
    for place in newest:
        kept.setdefault(place[0], []).append(place)
    return sorted(place for places in kept.values() for place in places[:SOFTWARE_KEPT])


def held(baseline: Baseline) -> list[str]:
    """Levels that are not where their nodes are, each in a sentence for a person to decide on."""
    found = []
    for entry in baseline.entries:
        at = level(entry)
        if at and at.held:
            why = (
                f"more than {DRIFT_IN_ALL:.0%} from where it began; learn with --accept if that is right"
                if _beyond(at.held, entry.first)
                else "it moves on at the next learning"
            )
            found.append(
                f"{entry.product}: {entry.key}: {at.nodes} nodes reach {said(at.held)} {entry.unit}, "
                f"the baseline stays at {said(at.usual)}: {why}"
            )
    return found


def _age(document: Document) -> tuple[float, str, bytes]:
    """Oldest first; of two at once always the same one last."""
    return document.started_at, document.node, msgspec.json.encode(document)


def _measured(document: Document) -> dict[Key, tuple[str, tuple[float, ...]]]:
    found: dict[Key, tuple[str, list[float]]] = {}
    passed = [result for result in document.results if result.outcome is Outcome.PASS]
    for key, _, figure in readings(passed, document.devices):
        unit, values = found.setdefault(key, (figure.unit, []))
        if key.product and unit == figure.unit:
            values.append(figure.value)
    return {key: (unit, tuple(sorted(values))) for key, (unit, values) in found.items() if values}


def _with(entry: Entry | None, place: _Place, unit: str, nodes: dict[str, Seen]) -> Entry:
    """The entry with these nodes; one in another unit is begun anew."""
    if entry is None or entry.unit != unit:
        product, test, figure, setting = place[0]
        entry = Entry(
            product=product, test=test, figure=figure, setting=setting, unit=unit, software=place[1], nodes={}
        )
    known = entry.nodes
    newer = {name: seen for name, seen in nodes.items() if name not in known or known[name].at < seen.at}
    if not newer:
        return entry
    was = level(entry)
    joined = sorted({**known, **newer}.items(), key=lambda item: (-item[1].at, item[0]))[:NODES_KEPT]
    entry = msgspec.structs.replace(entry, nodes=dict(sorted(joined)), before=was.usual if was else 0.0)
    now = level(entry)
    return entry if entry.first or now is None else msgspec.structs.replace(entry, first=now.usual)


def _accepted(entry: Entry) -> Entry:
    free = msgspec.structs.replace(entry, before=0.0, first=0.0)
    now = level(free)
    return msgspec.structs.replace(free, first=now.usual) if now else free


def _beyond(value: float, first: float) -> bool:
    return first > 0 and abs(value / first - 1) > DRIFT_IN_ALL
