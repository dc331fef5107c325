"""A post-mortem as Markdown, HTML or JSON. The same document gives the same bytes.

Templates are ours, and what stands in them is data: it is never compiled, every value is escaped unless it was made here
as markup, and the sandbox lets no template reach what is behind a value.
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

from remediator.postmortem import plot
from remediator.postmortem.document import Chart, LogLine, PostMortem
from remediator.postmortem.escape import Ready, clean, fenced, markdown
from vocabulary import spans

SPARK_LINES = 4
_STYLE = "postmortem.css"


class Form(str, enum.Enum):
    """What it can be rendered as."""

    MARKDOWN = "md"
    HTML = "html"
    JSON = "json"

    @property
    def media_type(self) -> str:
        """For the header of that name."""
        return {"md": "text/markdown; charset=utf-8", "html": "text/html; charset=utf-8", "json": "application/json"}[
            self
        ]


def render(document: PostMortem, form: Form) -> str:
    """The document in a form."""
    if form is Form.JSON:
        return _visible(msgspec.json.format(msgspec.json.encode(document), indent=2).decode()) + "\n"
    if form is Form.MARKDOWN:
        return _markdown().get_template("postmortem.md.j2").render(doc=document)
    style = _html().get_template(_STYLE).render()
    policy = content_policy(style)
    page = _html().get_template("postmortem.html.j2")
    return page.render(doc=document, style=Markup(style), policy=policy)  # noqa: S704 - our own file


def content_policy(style: str) -> str:
    """What the page may load: nothing but the one stylesheet it holds. It runs nothing and talks to nobody."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def moment(at: float | None) -> str:
    """UTC, to a tenth of a second; a dash for never.

    >>> moment(1700000000.25)
    '2023-11-14 22:13:20.2Z'
    """
    if at is None:
        return "–"
    try:
        return f"{datetime.fromtimestamp(at, tz=timezone.utc):%Y-%m-%d %H:%M:%S.%f}"[:-5] + "Z"
    except (ValueError, OverflowError, OSError):
        return f"{at:g}"


def clock(at: float) -> str:
    """The time of day alone, for lists in which the day is known."""
    return moment(at).partition(" ")[2] or moment(at)


def length(seconds: float | None) -> str:
    """A duration as people say it; a dash for none."""
    return "–" if seconds is None else spans.length(seconds)


def hours(gpu_hours: float | None) -> str:
    """GPU-hours.

    >>> [hours(h) for h in (None, 0.004, 1.25, 4032.0)]
    ['–', '0.004', '1.25', '4032']
    """
    if gpu_hours is None:
        return "–"
    return f"{gpu_hours:.0f}" if gpu_hours >= 1000 else f"{gpu_hours:.3g}"


def sparks(chart: Chart) -> list[dict[str, str]]:
    """The most telling curves of a chart, each as a row of letters with its range."""
    rows = []
    for line in chart.lines[:SPARK_LINES]:
        values = [value for _, value in line.points]
        row = {"label": line.label, "curve": plot.sparkline(line, chart), "low": plot.short(min(values))}
        rows.append(row | {"high": plot.short(max(values)), "last": plot.short(values[-1])})
    return rows


def _visible(text: str) -> str:
    """JSON that a terminal can show: in its strings, any letter may be written as a number."""
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def _plain(value: Any) -> Any:
    return clean(value) if isinstance(value, str) and not isinstance(value, Markup) else value


def _escaped(value: Any) -> Any:
    return markdown(value) if isinstance(value, str) and not isinstance(value, Ready) else value


def _ready(function: Callable[..., str]) -> Callable[..., Ready]:
    return lambda *arguments: Ready(function(*arguments))


@cache
def _html() -> ImmutableSandboxedEnvironment:
    environment = _environment(finalize=_plain, autoescape=True)
    environment.filters |= {"svg": plot.svg, "legend": plot.legend}
    return environment


@cache
def _markdown() -> ImmutableSandboxedEnvironment:
    environment = _environment(finalize=_escaped, autoescape=False)  # every value is escaped by `finalize` instead
    environment.filters |= {"log": _log, "code": _ready(_code)}
    for name in ("moment", "clock", "length", "hours"):
        environment.filters[name] = _ready(environment.filters[name])
    return environment


def _environment(*, finalize: Callable[[Any], Any], autoescape: bool) -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=PackageLoader("remediator.postmortem"),
        autoescape=autoescape,
        finalize=finalize,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {"moment": moment, "clock": clock, "length": length, "hours": hours, "sparks": sparks}
    return environment


def _log(lines: Sequence[LogLine]) -> Ready:
    return fenced(f"{clock(line.at)} {' ' if line.ours else '*'} {line.text}" for line in lines)


def _code(text: str) -> str:
    """For what we made ourselves of letters that Markdown does not know, such as sparklines."""
    return f"`{text}`"
