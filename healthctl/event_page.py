"""Lines of the audit log, as people read them. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from healthctl.output import Column, clean, moment
from remediator.model.views import EventView


def marked(event: EventView) -> str:
    """What happened; a test fault is named as one."""
    return f"[injected] {event.text}" if event.injected else event.text


EVENTS: Sequence[Column[EventView]] = (
    Column("SEQ", lambda e: str(e.seq)),
    Column("AT", lambda e: moment(e.at)),
    Column("KIND", lambda e: e.kind),
    Column("ACTOR", lambda e: e.actor),
    Column("NODE", lambda e: e.node, wide=True),
    Column("INCIDENT", lambda e: e.incident, wide=True),
    Column("WHAT", marked, prose=True),
)


def event_line(event: EventView) -> str:
    """One event on one line, for a log that grows."""
    about = " ".join(part for part in (event.node, event.incident) if part)
    return clean(
        f"{event.seq:>6}  {moment(event.at)}  {event.kind:<20}  {event.actor:<12}  {marked(event)}"
        + (f"  ({about})" if about else "")
    )
