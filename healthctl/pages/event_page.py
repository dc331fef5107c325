"""Formats lines of the audit log for people. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from healthctl.rendering.blocks import Column, escape_control_chars, format_timestamp
from remediator.model.views import EventView


def mark_injected_event(event: EventView) -> str:
    """The event's text; marks test faults as injected."""
    return f"[injected] {event.text}" if event.injected else event.text


EVENTS: Sequence[Column[EventView]] = (
    Column("SEQ", lambda e: str(e.seq)),
    Column("AT", lambda e: format_timestamp(e.at)),
    Column("KIND", lambda e: e.kind),
    Column("ACTOR", lambda e: e.actor),
    Column("NODE", lambda e: e.node, wide=True),
    Column("INCIDENT", lambda e: e.incident, wide=True),
    Column("WHAT", mark_injected_event, prose=True),
)


def format_event_line(event: EventView) -> str:
    """One event on one line, for a log that grows."""
    about = " ".join(part for part in (event.node, event.incident) if part)
    return escape_control_chars(
        f"{event.seq:>6}  {format_timestamp(event.at)}  {event.kind:<20}  {event.actor:<12}  {mark_injected_event(event)}"
        + (f"  ({about})" if about else "")
    )
