"""Message texts: from a site's sandboxed templates, or the default. A failing template never loses the message."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import jinja2
import msgspec
from jinja2.sandbox import ImmutableSandboxedEnvironment

from remediator.model.delivery import Delivery, NotificationMessage, NotificationPhase
from vocabulary.text.plurals import format_count

SHOWN_MAX = 20  # lines of one message; the rest is counted
TITLE_MAX = 500
TEXT_MAX = 20_000

_environment = ImmutableSandboxedEnvironment(undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True)


def check_template(source: str) -> None:
    """Check that a template parses.

    Raises:
        ValueError: line and reason.
    """
    try:
        _environment.from_string(source)
    except jinja2.TemplateSyntaxError as error:
        raise ValueError(f"template, line {error.lineno}: {error.message}") from None


def render_message_texts(title: str, text: str, items: Sequence[Delivery]) -> tuple[str, str]:
    """Render title (one line) and text of a message from two templates; an empty one means the default."""
    trouble: list[str] = []
    found_title = fill_template(title, items, trouble) if title else default_title(items)
    found_text = fill_template(text, items, trouble) if text else default_text(items)
    found_title = default_title(items) if found_title is None else found_title
    found_text = default_text(items) if found_text is None else found_text
    said = "\n".join([found_text[:TEXT_MAX], *trouble])
    return " ".join(found_title.split())[:TITLE_MAX], said


def fill_template(source: str, items: Sequence[Delivery], trouble: list[str]) -> str | None:
    """Render the template; None, and a line in `trouble`, if it fails."""
    messages = [_template_view(item) for item in items]
    try:
        return _environment.from_string(source).render(messages=messages, count=len(messages), **messages[0])
    except Exception as error:  # noqa: BLE001 - whatever a template does, the message must go out
        trouble.append(
            f"(the template of this receiver failed, so this is the default text: {type(error).__name__}: {error})"
        )
        return None


def _template_view(item: Delivery) -> dict[str, Any]:
    """Return one message's variables for templates."""
    return {
        **msgspec.to_builtins(item.message),
        "phase": item.phase.value,
        "resolved": item.phase is NotificationPhase.RESOLVE,
        "line": summarize_delivery(item),
    }


def default_title(items: Sequence[Delivery]) -> str:
    """Return the default title, one line."""
    if len(items) == 1:
        return f"{_phase_prefix(items[0])}{_message_headline(items[0].message)}"
    nodes = sorted({item.message.node for item in items})
    open_ones = sum(item.phase is NotificationPhase.FIRE for item in items)
    shown = ", ".join(nodes[:3]) + (f" and {len(nodes) - 3} more" if len(nodes) > 3 else "")
    drill = "[drill] " if all(item.message.injected for item in items) else ""
    resolved = f", {len(items) - open_ones} resolved" if open_ones < len(items) else ""
    return f"{drill}{items[0].message.cluster}: {format_count(open_ones, 'alert')}{resolved} on {shown}"


def default_text(items: Sequence[Delivery]) -> str:
    """Return the default text, one line a message; messages beyond the limit are counted."""
    if len(items) == 1:
        message = items[0].message
        lines = [message.text, f"rule {message.rule}" if message.rule else "", f"incident {message.incident}"]
        return "\n".join([line for line in lines if line] + ([message.link] if message.link else []))
    lines = [summarize_delivery(item) for item in items[:SHOWN_MAX]]
    if len(items) > SHOWN_MAX:
        lines.append(f"… and {len(items) - SHOWN_MAX} more; 'healthctl incidents' lists them all")
    return "\n".join(lines)


def summarize_delivery(item: Delivery) -> str:
    """Summarize one message of many."""
    message = item.message
    said = f": {message.text}" if message.text else ""
    return f"{_phase_prefix(item)}{_message_headline(message)}{said} ({message.incident}){' ' + message.link if message.link else ''}"


def _phase_prefix(item: Delivery) -> str:
    """Return the alert's phase. One that became part of another is not resolved."""
    if item.phase is NotificationPhase.ACKNOWLEDGE:
        return "acknowledged: "
    if item.phase is NotificationPhase.RESOLVE:
        return f"now part of {item.message.part_of}: " if item.message.part_of else "resolved: "
    return "update: " if item.message.update else ""


def _message_headline(message: NotificationMessage) -> str:
    """Return the headline. The title of a group incident names its subject itself."""
    drill = "[drill] " if message.injected else ""
    what = message.title or message.text or message.kind
    kind = "ticket: " if message.kind == "ticket" else ""
    where = "" if ":" in message.node and message.title else f"{message.node}: "
    return f"{drill}{kind}{message.severity.value}: {where}{what}"
