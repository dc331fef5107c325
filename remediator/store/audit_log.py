"""The audit log: append-only, each row sealed with a hash over the one before, so that a change is detected.

A row's hash is SHA-256 over the previous hash, its own number and epoch, and the event as stored; `meta` keeps the
number and hash of the last. Triggers refuse to change or delete rows, except a beginning that an *anchor* covers: a row
that says what was cut and carries the hash that the rest continues from.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence

import msgspec
from sqlalchemy import Connection, Row, delete, func, select

from remediator.model.journal_records import AuditEvent
from remediator.store import row_mapping, table_schema
from remediator.store.database_metadata import get_metadata, lock_metadata, set_metadata
from vocabulary.text.plurals import format_count

GENESIS = "0" * 64
HEAD = "audit_head"


class ChainCheck(msgspec.Struct, frozen=True):
    """The result of a verification. `broken` is empty if the chain holds; otherwise the first mismatch."""

    events: int
    first: int  # sequence numbers
    last: int
    head: str
    cut: int  # events that an anchor stands for
    broken: str = ""


def append_audit_events(db: Connection, events: Sequence[AuditEvent], epoch: int) -> None:
    """Append events in order, within the transaction of `db`. Other writers wait for its end."""
    if not events:
        return
    lock_metadata(db, HEAD)
    seq, previous = _chain_head(db)
    sealed = []
    for event in events:
        row = row_mapping.audit_row(event, epoch)
        seq += 1
        previous = seal_hash(previous, seq, epoch, row["body"])
        sealed.append({**row, "seq": seq, "hash": previous})
    db.execute(table_schema.audit.insert(), sealed)
    set_metadata(db, HEAD, f"{seq}:{previous}")


def seal_hash(previous: str, seq: int, epoch: int, body: bytes) -> str:
    """Return the hash of a row."""
    return hashlib.sha256(f"{previous}\n{seq}\n{epoch}\n".encode() + body).hexdigest()


def cut_audit_log(db: Connection, before: float, at: float, epoch: int, limit: int) -> int:
    """Cut up to `limit` events off the beginning, as far as all are older than `before`. Returns how many.

    The anchor is written with it, and the cut is an event of its own.
    """
    table = table_schema.audit
    lock_metadata(db, HEAD)
    oldest = db.execute(select(table.c.seq, table.c.at, table.c.hash).order_by(table.c.seq).limit(limit)).all()
    young = next((n for n, row in enumerate(oldest) if row.at >= before), len(oldest))
    gone = oldest[:young]
    if not gone:
        return 0
    last = gone[-1]
    anchor = {
        "through": last.seq,
        "hash": last.hash,
        "events": len(gone),
        "first_at": gone[0].at,
        "last_at": last.at,
        "cut_at": at,
    }
    db.execute(table_schema.audit_anchors.insert(), [anchor])
    db.execute(delete(table).where(table.c.seq <= last.seq))
    text = f"{format_count(len(gone), 'event')} through {last.seq} were removed from the audit log by the configured retention"
    data = {"through": last.seq, "hash": last.hash, "events": len(gone)}
    append_audit_events(db, [AuditEvent(at=at, kind="audit_cut", text=text, data=data)], epoch)
    return len(gone)


def verify_chain(db: Connection) -> ChainCheck:
    """Verify the whole chain, from the last anchor to the head.

    `db` must have run no query yet: it reads one snapshot while others write.
    """
    _begin_snapshot_read(db)
    table, anchors = table_schema.audit, table_schema.audit_anchors
    anchor = db.execute(select(anchors).order_by(anchors.c.through.desc()).limit(1)).first()
    cut_events = int(db.execute(select(func.coalesce(func.sum(anchors.c.events), 0))).scalar_one())
    seq, previous = (0, GENESIS) if anchor is None else (anchor.through, anchor.hash)
    start, count, broken = seq, 0, ""
    told = anchor is None
    query = select(table).order_by(table.c.seq)
    with db.execution_options(yield_per=1000).execute(query) as found:
        for row in found:
            broken = _chain_misfit(row, seq, previous)
            if broken:
                break
            seq, previous, count = row.seq, row.hash, count + 1
            told = told or (row.kind == "audit_cut" and _anchor_mentions(row.body, start))
    head = _chain_head(db)
    if not broken and (seq, previous) != head:
        broken = f"the log ends at event {seq}, but the last one written was {head[0]}: its end is missing"
    if not broken and not told:
        broken = f"an anchor covers removed events through {start}, but no event in the log records the removal"
    return ChainCheck(count, start + 1, seq, previous, cut_events, broken)


def _begin_snapshot_read(db: Connection) -> None:
    """Begin a transaction whose reads all see the snapshot of the first."""
    if db.dialect.name == "sqlite":
        db.exec_driver_sql("BEGIN")  # the driver itself would begin one only before the first write
    else:
        db.exec_driver_sql("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ, READ ONLY")


def _chain_misfit(row: Row[tuple[object, ...]], seq: int, previous: str) -> str:
    """Return why a row does not follow the one before; empty if it does."""
    if row.seq <= seq:
        return f"event {row.seq} lies in a range that an anchor marks as removed"
    if seal_hash(previous, row.seq, row.epoch, row.body) != row.hash:
        gap = f", or events {seq + 1} to {row.seq - 1} are missing" if row.seq > seq + 1 else ""
        return f"event {row.seq} differs from what was written{gap}"
    expected = row_mapping.audit_row(msgspec.json.decode(row.body, type=AuditEvent), row.epoch)
    wrong = [name for name in ("at", "node", "incident", "kind", "actor") if getattr(row, name) != expected[name]]
    return f"event {row.seq}: its column {', '.join(wrong)} does not match the event" if wrong else ""


def _anchor_mentions(body: bytes, through: int) -> bool:
    return msgspec.json.decode(body, type=AuditEvent).data.get("through") == through


def _chain_head(db: Connection) -> tuple[int, str]:
    seq, _, digest = (get_metadata(db, HEAD) or f"0:{GENESIS}").partition(":")
    return int(seq), digest


def describe_chain_check(found: ChainCheck) -> Iterable[str]:
    """Describe the result for operators."""
    if found.cut:
        yield f"{found.cut} events were removed at the beginning, covered by anchors"
    if found.broken:
        yield f"BROKEN: {found.broken}"
        yield f"{found.events} events before it are intact"
    else:
        yield f"{found.events} events are intact, {found.first} to {found.last}"
        yield f"head {found.last}:{found.head}"
