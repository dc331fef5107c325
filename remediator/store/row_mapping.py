"""Maps records to rows: the record itself, and the columns that queries need."""

from __future__ import annotations

from typing import Any

import msgspec

from remediator.incidents.finding_intake import last_news_time
from remediator.model.finding_settlement import Settlement
from remediator.model.journal_records import Action, AuditEvent, Decision, Incident, NodeRecord
from remediator.model.occurrence import Occurrence
from remediator.model.pipeline_inputs import AnyInput
from vocabulary.finding import Finding

COLUMN_MAX = 255
Row = dict[str, Any]


def shorten_column_text(text: str) -> str:
    """Shorten text for a column that operators query, and remove NUL, which PostgreSQL does not store.

    The record beside it keeps the full text.
    """
    return text.replace("\0", "")[:COLUMN_MAX]


def encode_record_body(record: msgspec.Struct) -> bytes:
    """Encode the record for storage."""
    return msgspec.json.encode(record)


def node_row(n: NodeRecord) -> Row:
    """Return a row of `nodes`."""
    return {
        "id": n.node,
        "body": encode_record_body(n),
        "state": n.state.value,
        "since": n.since,
        "held": n.held,
        "cause": shorten_column_text(n.cause),
    }


def finding_row(f: Finding) -> Row:
    """Return a row of `findings`. `last_seen` is the time of its last change, so that start-up finds recent ones."""
    return {
        "id": f.id,
        "node": f.node,
        "active": f.active,
        "last_seen": last_news_time(f),
        "body": encode_record_body(f),
        "kind": shorten_column_text(f.kind),
        "severity": f.severity.value,
        "component_kind": f.component.kind.value,
        "component": shorten_column_text(f.component.name or f.component.pci),
        "first_seen": f.first_seen,
        "injected": f.injected,
    }


def settlement_columns(by: Settlement | None) -> Row:
    """Return a finding's settlement as columns; None: not settled."""
    word, at = (shorten_column_text(by.said), by.at) if by is not None and by.said else ("", None)
    return {"settled_by": by.incident if by is not None else "", "settled_word": word, "settled_at": at}


def incident_row(i: Incident) -> Row:
    """Return a row of `incidents`."""
    return {
        "id": i.id,
        "node": shorten_column_text(i.node),
        "closed": i.closed_at is not None,
        "opened_at": i.opened_at,
        "body": encode_record_body(i),
        "title": shorten_column_text(i.title),
        "state": i.state.value,
        "rule": shorten_column_text(i.rule),
        "closed_at": i.closed_at,
        "outcome": shorten_column_text(i.outcome),
        "injected": i.injected,
    }


def decision_row(d: Decision) -> Row:
    """Return a row of `decisions`."""
    return {
        "id": d.id,
        "incident": d.incident,
        "at": d.at,
        "body": encode_record_body(d),
        "node": shorten_column_text(d.node),
        "answer": d.answer.value,
        "rule": shorten_column_text(d.rule),
        "policy": d.policy[:64],
    }


def action_row(a: Action) -> Row:
    """Return a row of `actions`; orders, alerts and preflight runs are actions of some verbs."""
    return {
        "id": a.id,
        "incident": a.incident,
        "final": a.state.final,
        "body": encode_record_body(a),
        "decision": a.decision,
        "node": shorten_column_text(a.node),
        "verb": shorten_column_text(a.verb)[:64],
        "state": a.state.value,
        "planned_at": a.planned_at,
        "finished_at": a.finished_at,
        "attempts": a.attempts,
        "is_order": a.order is not None,
        "detail": shorten_column_text(a.detail),
    }


def occurrence_row(o: Occurrence) -> Row:
    """Return a row of `occurrences`."""
    return {
        "at": o.at,
        "body": encode_record_body(o),
        "node": shorten_column_text(o.node),
        "kind": shorten_column_text(o.kind),
        "component": shorten_column_text(o.component),
        "incident": o.incident,
        "count": min(o.count, 2**31 - 1),
        "injected": o.injected,
    }


def input_row(item: AnyInput, epoch: int) -> Row:
    """Return a row of `inputs`."""
    return {"epoch": epoch, "at": item.at, "body": encode_record_body(item)}


def set_aside_row(item: AnyInput, why: str, epoch: int) -> Row:
    """Return a row of `set_aside`. The input itself may be impossible to encode as JSON."""
    try:
        kept = encode_record_body(item)
    except (msgspec.EncodeError, UnicodeError, ValueError):
        kept = repr(item).encode(errors="replace")
    return {"epoch": epoch, "at": item.at, "why": shorten_column_text(why), "body": kept}


def audit_row(event: AuditEvent, epoch: int) -> Row:
    """Return a row of `audit`."""
    return {
        "epoch": epoch,
        "at": event.at,
        "body": encode_record_body(event),
        "node": shorten_column_text(event.node),
        "incident": shorten_column_text(event.incident)[:64],
        "kind": shorten_column_text(event.kind)[:64],
        "actor": shorten_column_text(event.actor),
    }
