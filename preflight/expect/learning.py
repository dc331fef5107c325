"""From documents to a baseline. Pure. Only what passed whole, with nothing injected, teaches."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from preflight.expect.figures import Key, readings, said
from preflight.expect.fleet import DRIFT_IN_ALL, Baseline, Entry, Seen, level
from preflight.results import Document, Outcome, Verdict

NODES_KEPT = 128  # of each entry, the newest; more make no median better


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
    taught: dict[Key, dict[str, Seen]] = {}
    units: dict[Key, str] = {}
    for document in sorted((d for d in documents if not refusal(d)), key=_age):
        for key, (unit, values) in _measured(document).items():
            if units.setdefault(key, unit) == unit:
                taught.setdefault(key, {})[document.node] = Seen(document.started_at, values)
    entries = {entry.key: entry for entry in old.entries}
    for key, nodes in taught.items():
        entries[key] = _with(entries.get(key), key, units[key], nodes)
    if accept:
        entries = {key: _accepted(entry) for key, entry in entries.items()}
    return Baseline(entries=tuple(entries[key] for key in sorted(entries)))


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


def _with(entry: Entry | None, key: Key, unit: str, nodes: dict[str, Seen]) -> Entry:
    """The entry with these nodes; one in another unit is begun anew."""
    if entry is None or entry.unit != unit:
        entry = Entry(product=key.product, test=key.test, figure=key.figure, setting=key.setting, unit=unit, nodes={})
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
