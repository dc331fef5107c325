"""Records as rows: the record itself, and beside it the columns that queries need."""

from __future__ import annotations

from typing import Any

import msgspec

from remediator.incidents import moved
from remediator.model.inputs import AnyInput
from remediator.model.occurrence import Occurrence
from remediator.model.records import Action, AuditEvent, Decision, Incident, NodeRecord
from remediator.model.settled import Settled
from vocabulary.finding import Finding

COLUMN_MAX = 255
Row = dict[str, Any]


def shown(text: str) -> str:
    """Text for a column that people query: short, and without the one character that PostgreSQL takes in no text.

    The record beside it keeps the text whole.
    """
    return text.replace("\0", "")[:COLUMN_MAX]


def body(record: msgspec.Struct) -> bytes:
    """The record, as it is stored."""
    return msgspec.json.encode(record)


def node_row(n: NodeRecord) -> Row:
    """A row of `nodes`."""
    return {
        "id": n.node,
        "body": body(n),
        "state": n.state.value,
        "since": n.since,
        "held": n.held,
        "cause": shown(n.cause),
    }


def finding_row(f: Finding) -> Row:
    """A row of `findings`. `last_seen` is when anything about it last changed, so that start-up finds what is recent."""
    return {
        "id": f.id,
        "node": f.node,
        "active": f.active,
        "last_seen": moved(f),
        "body": body(f),
        "kind": shown(f.kind),
        "severity": f.severity.value,
        "component_kind": f.component.kind.value,
        "component": shown(f.component.name or f.component.pci),
        "first_seen": f.first_seen,
        "injected": f.injected,
    }


def settled_columns(by: Settled | None) -> Row:
    """Who dealt with a finding, as columns of its row; None: nobody did."""
    word, at = (shown(by.said), by.at) if by is not None and by.said else ("", None)
    return {"settled_by": by.incident if by is not None else "", "settled_word": word, "settled_at": at}


def incident_row(i: Incident) -> Row:
    """A row of `incidents`."""
    return {
        "id": i.id,
        "node": shown(i.node),
        "closed": i.closed_at is not None,
        "opened_at": i.opened_at,
        "body": body(i),
        "title": shown(i.title),
        "state": i.state.value,
        "rule": shown(i.rule),
        "closed_at": i.closed_at,
        "outcome": shown(i.outcome),
        "injected": i.injected,
    }


def decision_row(d: Decision) -> Row:
    """A row of `decisions`."""
    return {
        "id": d.id,
        "incident": d.incident,
        "at": d.at,
        "body": body(d),
        "node": shown(d.node),
        "answer": d.answer.value,
        "rule": shown(d.rule),
        "policy": d.policy[:64],
    }


def action_row(a: Action) -> Row:
    """A row of `actions`; orders, alerts and preflight runs are actions of some verbs."""
    return {
        "id": a.id,
        "incident": a.incident,
        "final": a.state.final,
        "body": body(a),
        "decision": a.decision,
        "node": shown(a.node),
        "verb": shown(a.verb)[:64],
        "state": a.state.value,
        "planned_at": a.planned_at,
        "finished_at": a.finished_at,
        "attempts": a.attempts,
        "is_order": a.order is not None,
        "detail": shown(a.detail),
    }


def occurrence_row(o: Occurrence) -> Row:
    """A row of `occurrences`."""
    return {
        "at": o.at,
        "body": body(o),
        "node": shown(o.node),
        "kind": shown(o.kind),
        "component": shown(o.component),
        "incident": o.incident,
        "count": min(o.count, 2**31 - 1),
        "injected": o.injected,
    }


def input_row(item: AnyInput, epoch: int) -> Row:
    """A row of `inputs`."""
    return {"epoch": epoch, "at": item.at, "body": body(item)}


def set_aside_row(item: AnyInput, why: str, epoch: int) -> Row:
    """A row of `set_aside`. The input itself may be what cannot be written as JSON."""
    try:
        kept = body(item)
    except (msgspec.EncodeError, UnicodeError, ValueError):
        kept = repr(item).encode(errors="replace")
    return {"epoch": epoch, "at": item.at, "why": shown(why), "body": kept}


def audit_row(event: AuditEvent, epoch: int) -> Row:
    """A row of `audit`."""
    return {
        "epoch": epoch,
        "at": event.at,
        "body": body(event),
        "node": shown(event.node),
        "incident": shown(event.incident)[:64],
        "kind": shown(event.kind)[:64],
        "actor": shown(event.actor),
    }
