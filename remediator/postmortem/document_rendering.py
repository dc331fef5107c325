"""Renders a post-mortem as Markdown, HTML or JSON. The same document gives the same bytes.

Templates are ours, and values are data: never compiled, escaped unless built here as markup, and the sandbox lets no
template reach an object's internals.
"""

from __future__ import annotations

import base64
import enum
import hashlib
import json
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from functools import cache
from typing import Any

import msgspec
from jinja2 import PackageLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from remediator.postmortem import svg_plot
from remediator.postmortem.postmortem_document import EvidenceChart, LogLine, PostMortem
from remediator.postmortem.text_escaping import (
    EscapedMarkdown,
    escape_control_characters,
    escape_markdown,
    fence_code_block,
)
from vocabulary.text import duration_format

SPARK_LINES = 4
_STYLE = "postmortem.css"


class DocumentForm(str, enum.Enum):
    """The output formats."""

    MARKDOWN = "md"
    HTML = "html"
    JSON = "json"

    @property
    def media_type(self) -> str:
        """The media type of the format."""
        return {"md": "text/markdown; charset=utf-8", "html": "text/html; charset=utf-8", "json": "application/json"}[
            self
        ]


def render_document(document: PostMortem, form: DocumentForm) -> str:
    """Render the document in a format."""
    if form is DocumentForm.JSON:
        return _visible_json(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"
    if form is DocumentForm.MARKDOWN:
        return _markdown_environment().get_template("postmortem.md.j2").render(doc=document)
    style = _html_environment().get_template(_STYLE).render()
    policy = content_policy(style)
    page = _html_environment().get_template("postmortem.html.j2")
    return page.render(doc=document, style=Markup(style), policy=policy)  # noqa: S704 - our own file


def content_policy(style: str) -> str:
    """Return the page's content security policy: its one inline stylesheet, no scripts, no connections."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def format_utc_moment(at: float | None) -> str:
    """Format a UTC time to a tenth of a second; a dash for none.

    >>> format_utc_moment(1700000000.25)
    '2023-11-14 22:13:20.2Z'
    """
    if at is None:
        return "–"
    try:
        return f"{datetime.fromtimestamp(at, tz=timezone.utc):%Y-%m-%d %H:%M:%S.%f}"[:-5] + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def format_time_of_day(at: float) -> str:
    """Format the time of day, for lists in which the day is known."""
    return format_utc_moment(at).partition(" ")[2] or format_utc_moment(at)


def format_duration(seconds: float | None) -> str:
    """Format a duration; a dash for none."""
    return "–" if seconds is None else duration_format.format_duration(seconds)


def format_gpu_hours(gpu_hours: float | None) -> str:
    """Format GPU-hours.

    >>> [format_gpu_hours(h) for h in (None, 0.004, 1.25, 4032.0)]
    ['–', '0.004', '1.25', '4032']
    """
    if gpu_hours is None:
        return "–"
    return f"{gpu_hours:.0f}" if gpu_hours >= 1000 else f"{gpu_hours:.3g}"


def chart_sparklines(chart: EvidenceChart) -> list[dict[str, str]]:
    """Return the most informative curves of a chart, each as a sparkline with its range."""
    rows = []
    for line in chart.lines[:SPARK_LINES]:
        values = [value for _, value in line.points]
        row = {
            "label": line.label,
            "curve": svg_plot.render_sparkline(line, chart),
            "low": svg_plot.format_short_number(min(values)),
        }
        rows.append(
            row | {"high": svg_plot.format_short_number(max(values)), "last": svg_plot.format_short_number(values[-1])}
        )
    return rows


def _visible_json(text: str) -> str:
    """Return JSON that a terminal can display: other characters in strings are escaped."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _finalize_html(value: Any) -> Any:
    return escape_control_characters(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _finalize_markdown(value: Any) -> Any:
    return escape_markdown(value) if isinstance(value, str) and not isinstance(value, EscapedMarkdown) else value


def _mark_escaped(function: Callable[..., str]) -> Callable[..., EscapedMarkdown]:
    return lambda *arguments: EscapedMarkdown(function(*arguments))


@cache
def _html_environment() -> ImmutableSandboxedEnvironment:
    environment = _build_sandbox(finalize=_finalize_html, autoescape=True)
    environment.filters |= {"svg": svg_plot.render_chart_svg, "legend": svg_plot.render_chart_legend}
    return environment


@cache
def _markdown_environment() -> ImmutableSandboxedEnvironment:
    environment = _build_sandbox(
        finalize=_finalize_markdown, autoescape=False
    )  # `finalize` escapes every value instead
    environment.filters |= {"log": _render_log_lines, "code": _mark_escaped(_render_inline_code)}
    for name in ("moment", "clock", "length", "hours"):
        environment.filters[name] = _mark_escaped(environment.filters[name])
    return environment


def _build_sandbox(*, finalize: Callable[[Any], Any], autoescape: bool) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=PackageLoader("remediator.postmortem"),
        autoescape=autoescape,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "moment": format_utc_moment,
        "clock": format_time_of_day,
        "length": format_duration,
        "hours": format_gpu_hours,
        "sparks": chart_sparklines,
    }
    return environment


def _render_log_lines(lines: Sequence[LogLine]) -> EscapedMarkdown:
    return fence_code_block(f"{format_time_of_day(line.at)} {' ' if line.ours else '*'} {line.text}" for line in lines)


def _render_inline_code(text: str) -> str:
    """Format text built here from characters without meaning in Markdown, such as sparklines."""
    return f"`{text}`"
