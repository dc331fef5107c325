"""Documents as JUnit XML, for test result collectors.

Failures and hangs are failures, inconclusive results are errors, tests that did not run or do not apply are skipped. Readers
count skipped tests as good, so each suite has one more case, the verdict, which succeeds only if the node passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

from preflight.report.repair_advice import advise_repair, list_next_steps
from preflight.report.result_tables import ReportedFailure
from preflight.report.timestamps import format_iso_timestamp
from preflight.report.value_format import (
    SOURCES,
    THE_NODE,
    escape_text,
    format_limits,
    format_location,
    format_margin,
    format_number,
)
from preflight.results import Document, Figure, Outcome, Result, Verdict

_BAD = {Outcome.FAIL: "failure", Outcome.HANG: "failure", Outcome.ERROR: "error"}
_SKIPPED = (Outcome.NOT_RUN, Outcome.NOT_APPLICABLE)
_VERDICT = {Verdict.FAIL: "failure", Verdict.INCONCLUSIVE: "error", Verdict.MISCONFIGURED: "error"}
VERDICT_CASE = "verdict"


def render_junit(documents: Sequence[Document]) -> str:
    """All documents as one XML file, a suite for each."""
    root = ET.Element("testsuites", name="preflight")
    root.extend(_build_suite(document) for document in documents)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", _format_seconds(sum(document.seconds for document in documents)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _build_suite(document: Document) -> ET.Element:
    cases = [*(_build_case(document.level, result) for result in document.results), _build_verdict_case(document)]
    suite = ET.Element(
        "testsuite",
        name=f"preflight {escape_text(document.level)} {escape_text(document.node)}",
        hostname=escape_text(document.node),
        timestamp=format_iso_timestamp(document.started_at),
        time=_format_seconds(document.seconds),
        tests=str(len(cases)),
        failures=str(_count_cases_with(cases, "failure")),
        errors=str(_count_cases_with(cases, "error")),
        skipped=str(_count_cases_with(cases, "skipped")),
    )
    facts = {
        "level": document.level,
        "verdict": document.verdict.value,
        "complete": str(document.complete).lower(),
        "rounds": str(document.rounds),
        "injected": ", ".join(document.injected),
    }
    suite.append(_build_properties(facts))
    suite.extend(cases)
    return suite


def _build_case(level: str, result: Result) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=f"preflight.{escape_text(result.test)}",
        name=f"{escape_text(result.test)} on {escape_text(result.device) or THE_NODE}",
        time=_format_seconds(result.seconds),
    )
    facts = {
        **{
            _format_figure_name(figure): f"{format_number(figure.value)} {figure.unit}".rstrip()
            for figure in result.figures
        },
        **{name: str(value) for name, value in result.evidence.items()},
    }
    if facts:
        case.append(_build_properties(facts))
    reason = escape_text(result.reason or result.outcome.value)
    if result.outcome in _BAD:
        told = ET.SubElement(case, _BAD[result.outcome], message=reason, type=result.outcome.value)
        told.text = "\n".join(_describe_failure(ReportedFailure(level, (result.test,), result)))
    elif result.outcome in _SKIPPED:
        ET.SubElement(case, "skipped", message=reason)
    if said := [*result.remarks, *map(_describe_bounds, result.figures)]:
        ET.SubElement(case, "system-out").text = "\n".join(escape_text(line) for line in said if line)
    return case


def _build_verdict_case(document: Document) -> ET.Element:
    """The node's verdict as a separate case."""
    case = ET.Element("testcase", classname="preflight", name=VERDICT_CASE, time=_format_seconds(0.0))
    if document.verdict in _VERDICT:
        kind = _VERDICT[document.verdict]
        message = escape_text(document.reason or document.verdict.value)
        told = ET.SubElement(case, kind, message=message, type=document.verdict.value)
        told.text = "\n".join(escape_text(line) for line in (*document.reasons, *list_next_steps(document)))
    return case


def _describe_failure(wrong: ReportedFailure) -> Iterator[str]:
    result = wrong.first
    yield escape_text(result.reason or result.outcome.value)
    for location in result.locations:
        yield f"where: {escape_text(format_location(location))}"
    yield f"do: {escape_text(advise_repair(wrong))}"


def _format_figure_name(figure: Figure) -> str:
    return f"{figure.name} ({figure.setting})" if figure.setting else figure.name


def _describe_bounds(figure: Figure) -> str:
    """A figure with its expectations; "" without any."""
    if not figure.expected:
        return ""
    bounds = "; ".join(
        f"{format_limits(each, figure.unit)} ({SOURCES[each.source]}: {each.words})" for each in figure.expected
    )
    margin = "" if figure.margin is None else f", margin {format_margin(figure.margin)}"
    return f"{_format_figure_name(figure)} {format_number(figure.value)} {figure.unit}: expected {bounds}{margin}"


def _build_properties(facts: dict[str, str]) -> ET.Element:
    element = ET.Element("properties")
    for name, value in facts.items():
        ET.SubElement(element, "property", name=escape_text(name), value=escape_text(value))
    return element


def _count_cases_with(cases: Sequence[ET.Element], tag: str) -> int:
    return sum(case.find(tag) is not None for case in cases)


def _format_seconds(seconds: float) -> str:
    return f"{max(seconds, 0.0):.3f}"
