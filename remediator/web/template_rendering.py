"""Renders templates to HTML. Values are escaped and control characters made visible; only templates contain markup."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime, timezone
from functools import cache
from typing import Any

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from remediator.postmortem.text_escaping import escape_control_characters
from remediator.web.incident_progress import step_text
from vocabulary.text import duration_format

HEADERS = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "same-origin",  # with no-referrer, browsers would send forms without their origin
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}

TODAY_S, YEAR_S = 12 * 3600.0, 300 * 86400.0  # times nearer than this are shown without their day or year

# After an action the browser is redirected to a page; `done=KEY` selects the message that it shows.
DONE: Mapping[str, str] = {
    "hold": "Node taken over: automation does nothing to it until it is released.",
    "release": "Node released: automation acts on it again.",
    "cordon": "Cordon requested from the scheduler, in your name.",
    "uncordon": "Uncordon requested from the scheduler.",
    "retire": "Node retired: it is no longer part of the cluster.",
    "unretire": "Node returned to the cluster, on probation.",
    "acknowledge": "Incident assigned to you.",
    "note": "Note added.",
    "approve": "Approved: the plan starts as soon as guards and budgets allow it.",
    "resolve": "Incident resolved.",
    "reopen": "Incident reopened for a new decision.",
    "cancel": "Action cancelled; operators decide on the rest of its plan.",
    "mode": "Mode set.",
    "breaker": "Breaker reset: nodes may be isolated again.",
    "silence": "Silence created. Automation still acts.",
    "silence-end": "Silence ended: notifications are sent again.",
}

# state or health → the sign shown beside its colour
SIGNS: Mapping[str, str] = {
    "healthy": "✓",
    "suspect": "?",
    "draining": "↓",
    "quarantined": "✕",
    "resetting": "↻",
    "replacing": "⇄",
    "testing": "◔",
    "probation": "◑",
    "operator-held": "‖",
    "retired": "–",
    "degraded": "▵",
    "unhealthy": "✕",
    "unknown": "?",
}


def format_moment(at: float | None) -> str:
    """Format a time in UTC, to the second; None becomes a dash.

    >>> format_moment(1700000000.25)
    '2023-11-14 22:13:20Z'
    """
    if at is None:
        return "–"
    try:
        return f"{datetime.fromtimestamp(at, tz=timezone.utc):%Y-%m-%d %H:%M:%S}Z"
    except (ValueError, OverflowError, OSError):
        return f"{at:g} s"


def format_rough_span(seconds: float) -> str:
    """Format a duration roughly, in its one or two largest units.

    >>> [format_rough_span(s) for s in (0.2, 7.25, 303, 7500, 273_600)]
    ['0 s', '7 s', '5 min', '2 h 5 min', '3 d 4 h']
    """
    if not 0 <= seconds < 1e12:
        return "–"
    if seconds < 60:
        return f"{seconds:.0f} s"
    if seconds < 3600:
        return f"{seconds // 60:.0f} min"
    return duration_format.format_duration(seconds)


def format_age(at: float | None, now: float) -> Markup:
    """A time and its age when the page was rendered; a script in the browser keeps the age current."""
    if at is None:
        return Markup('<span class="never">–</span>')
    there = format_moment(at)
    short = there[11:] if abs(now - at) < TODAY_S else there[5:16] + "Z" if abs(now - at) < YEAR_S else there[:10]
    ago = f"{format_rough_span(now - at)} ago" if at <= now else f"in {format_rough_span(at - now)}"
    return Markup('<time datetime="{}" title="{}">{} <small data-ago>{}</small></time>').format(
        there.replace(" ", "T"), there, short, ago
    )


def format_clock(at: float) -> Markup:
    """The time of day in UTC; the tooltip has the date.

    >>> str(format_clock(1700000000.25))
    '<time datetime="2023-11-14T22:13:20Z" title="2023-11-14 22:13:20Z">22:13:20Z</time>'
    """
    there = format_moment(at)
    return Markup('<time datetime="{}" title="{}">{}</time>').format(
        there.replace(" ", "T"), there, there[11:] or there
    )


def strip_incident_name(text: str, incident: str) -> str:
    """Remove the incident's id from the start of an audit text, if a column beside it shows the id.

    >>> [strip_incident_name(t, "inc-1") for t in ("inc-1.d2 hold: x", "inc-1: gpu-lost", "inc-1 on n1: x", "of inc-1")]
    ['hold: x', 'gpu-lost', 'on n1: x', 'of inc-1']
    """
    name, _, rest = text.partition(" ")
    return rest if incident and rest and re.fullmatch(re.escape(incident) + r"(\.d\d+|:)?", name) else text


def render_page(template: str, values: Mapping[str, Any]) -> str:
    """Render a template."""
    return _page_environment().get_template(template).render(values)


def _visible_text(value: Any) -> Any:
    return value if isinstance(value, Markup) else escape_control_characters(str(value))


def state_sign(state: str) -> str:
    """The sign shown beside a state's colour; a dot for an unknown state."""
    return SIGNS.get(state, "·")


def state_class(state: str) -> str:
    """The CSS class of a state; that of `unknown` for an unknown state."""
    return f"s-{state}" if state in SIGNS else "s-unknown"


def format_count(number: float, one: str = "", many: str = "") -> Markup:
    """Format a number with thin spaces between thousands, and its unit.

    >>> [str(c) for c in (format_count(1, "node"), format_count(12500, "node"), format_count(2, "job has", "jobs have"), format_count(1234.0))]
    ['1 node', '12&#8239;500 nodes', '2 jobs have', '1&#8239;234']
    """
    digits = Markup("&#8239;").join(f"{number:,.0f}".split(","))
    word = one if number == 1 or not one else many or f"{one}s"
    return Markup("{} {}").format(digits, word) if word else digits


def format_number_ranges(numbers: Iterable[int]) -> str:
    """Format integers, consecutive ones as ranges.

    >>> format_number_ranges((3, 0, 1, 2, 8))
    '0–3, 8'
    """
    runs: list[list[int]] = []
    for number in sorted(set(numbers)):
        if runs and number == runs[-1][-1] + 1:
            runs[-1][1:] = [number]
        else:
            runs.append([number])
    return ", ".join("–".join(map(str, run)) for run in runs)


@cache
def _page_environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("remediator.web"),
        autoescape=True,
        finalize=_visible_text,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    filters: dict[str, Callable[..., Any]] = {
        "moment": format_moment,
        "span": format_rough_span,
        "sign": state_sign,
        "state_class": state_class,
        "count": format_count,
        "ranges": format_number_ranges,
        "visible": escape_control_characters,
        "said": step_text,
        "clock": format_clock,
        "unnamed": strip_incident_name,
    }
    environment.filters |= filters
    return environment
