"""Renders documents as one self-contained HTML page: no scripts, no external files, light and dark, wide and narrow.

The templates are ours and the values are data: every value is escaped unless it was created here as markup.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from functools import cache
from typing import Any

from jinja2 import PackageLoader, StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from preflight.report import figure_charts, result_tables, timestamps, value_format
from preflight.report.pair_matrices import build_pair_matrices, exclude_pair_figures
from preflight.report.repair_advice import RETEST, advise_repair, split_failures
from preflight.results import Document, Expectation
from vocabulary.text.duration_format import format_duration

LOCATIONS_SHOWN = 32
_STYLE = "preflight.css"


def render_html(documents: Sequence[Document]) -> str:
    """All documents as one page, the worst first."""
    weight = {3: 1, 2: 2, 1: 3}  # of exit codes: a failure weighs most
    shown = sorted(documents, key=lambda document: -weight.get(document.verdict.exit_code, 0))
    style = _build_environment().get_template(_STYLE).render()
    page = _build_environment().get_template("preflight.html.j2")
    views = [_build_view(document, f"d{number}") for number, document in enumerate(shown)]
    return page.render(views=views, style=Markup(style), policy=build_content_policy(style))  # noqa: S704 - our own file


def build_content_policy(style: str) -> str:
    """The content security policy: only the page's own stylesheet."""
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"


def _build_view(document: Document, mark: str) -> dict[str, Any]:
    """The template's data for one document; `mark` makes its ids unique."""
    results = document.results
    matrices = build_pair_matrices(results)
    figures = exclude_pair_figures(result_tables.group_figures(results), matrices)
    found = result_tables.build_outcome_rows(results)
    grave, rest = split_failures(document)
    names = list(result_tables.order_device_names(result.device for result in results))
    return {
        "doc": document,
        "mark": mark,
        "grave": grave,
        "rest": rest,
        "counted": result_tables.count_outcomes(results),
        "names": [
            *names,
            *([value_format.THE_NODE] if any(value_format.THE_NODE in row.cells for row in found) else []),
        ],
        "count": len(document.devices) or len(names),
        "kinds": result_tables.group_devices(document.devices),
        "rows": found,
        "course": figure_charts.draw_course(found),
        "groups": sorted(figures, key=lambda group: (not group.fails, not group.remarkable)),
        "bounded": any(reading.figure.expected for group in figures for reading in group.readings),
        "matrices": matrices,
        "remarks": _collect_remarks(document),
        "noted": any(result.evidence for result in results),
    }


def _collect_remarks(document: Document) -> list[tuple[str, str, str]]:
    """Test, devices and text of each remark, once."""
    made: dict[tuple[str, str], list[str]] = {}
    for result in document.results:
        for remark in result.remarks:
            made.setdefault((result.test, remark), []).append(result.device)
    return [(test, ", ".join(filter(None, devices)), remark) for (test, remark), devices in made.items()]


def _summarise_bounds(group: result_tables.FigureGroup) -> list[tuple[str, str]]:
    """Each source of a group's bounds once: its limits, or their range over the devices, and its text for the first."""
    said: dict[tuple[str, bool], list[tuple[str, Expectation]]] = {}
    for reading in group.readings:
        for each in reading.figure.expected:
            said.setdefault((value_format.SOURCES[each.source], each.fails), []).append((reading.device, each))
    return [
        (
            _format_range([each for _, each in told], group.unit),
            _describe_bound_source(source, told) + ("" if fails else " (a remark only)"),
        )
        for (source, fails), told in said.items()
    ]


def _format_range(bounds: Sequence[Expectation], unit: str) -> str:
    parts = []
    for sign, values in (
        ("≥", [each.at_least for each in bounds if each.at_least is not None]),
        ("≤", [each.at_most for each in bounds if each.at_most is not None]),
    ):
        ends = (
            sorted({value_format.format_number(value) for value in (min(values), max(values))}, key=float)
            if values
            else []
        )
        if ends:
            parts.append(f"{sign} {' to '.join(ends)}")
    return f"{' and '.join(parts)} {unit}".strip()


def _describe_bound_source(source: str, told: Sequence[tuple[str, Expectation]]) -> str:
    device, first = told[0]
    alike = all(each.words == first.words for _, each in told)
    return ": ".join(filter(None, (source, first.words))) + ("" if alike else f" (of {device})")


def _clean_value(value: Any) -> Any:
    return value_format.escape_text(value) if isinstance(value, str) and not isinstance(value, Markup) else value


@cache
def _build_environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        loader=PackageLoader("preflight.report"),
        autoescape=True,
        finalize=_clean_value,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters |= {
        "moment": timestamps.format_moment,
        "length": format_duration,
        "number": value_format.format_number,
        "roughly": value_format.format_roughly,
        "share": value_format.format_margin,
        "place": value_format.format_location,
        "advice": advise_repair,
        "axis": figure_charts.build_axis,
        "bounds": _summarise_bounds,
    }
    environment.globals |= {
        "track": figure_charts.draw_track,
        "shade": figure_charts.choose_heat_class,
        "words": value_format.OUTCOMES,
        "signs": value_format.SIGNS,
        "most": LOCATIONS_SHOWN,
        "retest": RETEST,
    }
    return environment
