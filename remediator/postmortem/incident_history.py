"""The input of a post-mortem, and queries on it that several parts share. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

import msgspec

from remediator.model.journal_records import Action, ActionState, AuditEvent, Decision, Incident, IncidentState
from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.finding import Finding, Severity
from vocabulary.messages.evidence_bundle import EvidenceBundle
from vocabulary.order import TRAINER_ORDERS, Order, OrderKind

HOLDING = frozenset({"cordon", "drain"})  # verbs that isolate a node
BACK_IN_SERVICE = frozenset({"probation", "healthy"})


class IncidentHistory(msgspec.Struct, frozen=True, kw_only=True):
    """Everything known of one incident. `as_of` is the time of writing.

    `gpus`: GPUs of a node; `returns`: when a job that the incident ended was first seen running again; `earlier`:
    incidents of the same node before this one.
    """

    incident: Incident
    as_of: float
    catalogue: Catalogue
    findings: Sequence[Finding] = ()
    decisions: Sequence[Decision] = ()
    actions: Sequence[Action] = ()
    events: Sequence[AuditEvent] = ()
    evidence: Sequence[EvidenceBundle] = ()
    gpus: Mapping[str, int] = {}
    returns: Mapping[str, float] = {}
    earlier: Sequence[Incident] = ()

    @property
    def culprit(self) -> Finding | None:
        """The most severe finding; of equal ones the first seen, since later ones mostly follow from it."""
        return min(self.findings, key=lambda f: (-f.severity.rank, f.first_seen, f.id), default=None)

    @property
    def first_seen(self) -> float | None:
        """When the first finding that needed a reaction was seen on the node."""
        return min((f.first_seen for f in self.findings if f.severity is not Severity.INFO), default=None)

    @property
    def ended_at(self) -> float:
        """When it was closed; for an open one the time of writing."""
        return self.as_of if self.incident.closed_at is None else self.incident.closed_at

    @property
    def isolated(self) -> tuple[float, float | None] | None:
        """From when until when the node was isolated for this incident: None if never, no end if it still is."""
        began = min(
            (
                action.planned_at if action.finished_at is None else action.finished_at
                for action in self.actions
                if action.verb in HOLDING and action.state is ActionState.SUCCEEDED
            ),
            default=None,
        )
        if began is None:
            return None
        return began, min((at for at in self._returned() if at >= began), default=None)

    @property
    def trainer_orders(self) -> dict[tuple[str, int | None], list[tuple[Action, Order]]]:
        """The orders to save or to stop, by job and attempt, in planned order."""
        found: dict[tuple[str, int | None], list[tuple[Action, Order]]] = {}
        for action in sorted(self.actions, key=lambda a: (a.planned_at, a.id)):
            order = action.order
            if order is not None and order.kind in TRAINER_ORDERS:
                found.setdefault((order.job, order.attempt), []).append((action, order))
        return found

    def gpus_of(self, node: str) -> int | None:
        """Return how many GPUs a node has, by its own reports then or now."""
        for bundle in self.evidence:
            if bundle.node == node and bundle.gpus:
                return len(bundle.gpus)
        return self.gpus.get(node)

    def _returned(self) -> Iterator[float]:
        for action in self.actions:
            if action.verb == "resume" and action.state is ActionState.SUCCEEDED and action.finished_at is not None:
                yield action.finished_at
        for event in self.events:
            if (
                event.kind == "node_state"
                and event.data.get("to") in BACK_IN_SERVICE
                and event.node == self.incident.node
            ):
                yield event.at

    @property
    def over(self) -> bool:
        """Whether it is closed."""
        return self.incident.state is IncidentState.CLOSED


def fact_time(actions: Sequence[Action], name: str) -> float | None:
    """Return the latest of a time in the answers to orders, such as ``saved_at``; None without one."""
    times = [value for action in actions if isinstance(value := action.data.get(name), int | float) and value > 0]
    return float(max(times)) if times else None


def evidence_orders(actions: Sequence[Action]) -> list[Action]:
    """The orders to collect evidence."""
    return [action for action in actions if action.verb == OrderKind.COLLECT_EVIDENCE.value]
