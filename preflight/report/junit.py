"""Documents as JUnit XML, for what collects the results of tests.

A failure or a hang is a failure, what came to no conclusion an error, what did not run or does not apply is skipped. Readers
count what is skipped as good, so each suite has a case more, the verdict, which succeeds only if the node passed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from xml.etree import ElementTree as ET

from preflight.report.advice import advice, next_steps
from preflight.report.dates import timestamp
from preflight.report.tables import Wrong
from preflight.report.wording import SOURCES, THE_NODE, clean, limits, number, place, share
from preflight.results import Document, Figure, Outcome, Result, Verdict

_BAD = {Outcome.FAIL: "failure", Outcome.HANG: "failure", Outcome.ERROR: "error"}
_SKIPPED = (Outcome.NOT_RUN, Outcome.NOT_APPLICABLE)
_VERDICT = {Verdict.FAIL: "failure", Verdict.INCONCLUSIVE: "error", Verdict.MISCONFIGURED: "error"}
VERDICT_CASE = "verdict"


def junit(documents: Sequence[Document]) -> str:
    """All documents as one XML file, a suite for each."""
    root = ET.Element("testsuites", name="preflight")
    root.extend(_suite(document) for document in documents)
    for name in ("tests", "failures", "errors", "skipped"):
        root.set(name, str(sum(int(suite.get(name, "0")) for suite in root)))
    root.set("time", _seconds(sum(document.seconds for document in documents)))
    ET.indent(root)
    return '<?xml version="1.0" encoding="UTF-8"?>\n' + ET.tostring(root, encoding="unicode") + "\n"


def _suite(document: Document) -> ET.Element:
    cases = [*(_case(document.level, result) for result in document.results), _verdict(document)]
    suite = ET.Element(
        "testsuite",
        name=f"preflight {clean(document.level)} {clean(document.node)}",
        hostname=clean(document.node),
        timestamp=timestamp(document.started_at),
        time=_seconds(document.seconds),
        tests=str(len(cases)),
        failures=str(_having(cases, "failure")),
        errors=str(_having(cases, "error")),
        skipped=str(_having(cases, "skipped")),
    )
    facts = {
        "level": document.level,
        "verdict": document.verdict.value,
        "complete": str(document.complete).lower(),
        "rounds": str(document.rounds),
        "injected": ", ".join(document.injected),
    }
    suite.append(_properties(facts))
    suite.extend(cases)
    return suite


def _case(level: str, result: Result) -> ET.Element:
    case = ET.Element(
        "testcase",
        classname=f"preflight.{clean(result.test)}",
        name=f"{clean(result.test)} on {clean(result.device) or THE_NODE}",
        time=_seconds(result.seconds),
    )
    facts = {
        **{_name(figure): f"{number(figure.value)} {figure.unit}".rstrip() for figure in result.figures},
        **{name: str(value) for name, value in result.evidence.items()},
    }
    if facts:
        case.append(_properties(facts))
    reason = clean(result.reason or result.outcome.value)
    if result.outcome in _BAD:
        told = ET.SubElement(case, _BAD[result.outcome], message=reason, type=result.outcome.value)
        told.text = "\n".join(_details(Wrong(level, (result.test,), result)))
    elif result.outcome in _SKIPPED:
        ET.SubElement(case, "skipped", message=reason)
    if said := [*result.remarks, *map(_bounds, result.figures)]:
        ET.SubElement(case, "system-out").text = "\n".join(clean(line) for line in said if line)
    return case


def _verdict(document: Document) -> ET.Element:
    """The node's fitness as a case of its own."""
    case = ET.Element("testcase", classname="preflight", name=VERDICT_CASE, time=_seconds(0.0))
    if document.verdict in _VERDICT:
        kind = _VERDICT[document.verdict]
        message = clean(document.reason or document.verdict.value)
        told = ET.SubElement(case, kind, message=message, type=document.verdict.value)
        told.text = "\n".join(clean(line) for line in (*document.reasons, *next_steps(document)))
    return case


def _details(wrong: Wrong) -> Iterator[str]:
    result = wrong.first
    yield clean(result.reason or result.outcome.value)
    for location in result.locations:
        yield f"where: {clean(place(location))}"
    yield f"do: {clean(advice(wrong))}"


def _name(figure: Figure) -> str:
    return f"{figure.name} ({figure.setting})" if figure.setting else figure.name


def _bounds(figure: Figure) -> str:
    """A figure with what was expected of it; "" if nothing was."""
    if not figure.expected:
        return ""
    bounds = "; ".join(
        f"{limits(each, figure.unit)} ({SOURCES[each.source]}: {each.words})" for each in figure.expected
    )
    margin = "" if figure.margin is None else f", margin {share(figure.margin)}"
    return f"{_name(figure)} {number(figure.value)} {figure.unit}: expected {bounds}{margin}"


def _properties(facts: dict[str, str]) -> ET.Element:
    element = ET.Element("properties")
    for name, value in facts.items():
        ET.SubElement(element, "property", name=clean(name), value=clean(value))
    return element


def _having(cases: Sequence[ET.Element], tag: str) -> int:
    return sum(case.find(tag) is not None for case in cases)


def _seconds(seconds: float) -> str:
    return f"{max(seconds, 0.0):.3f}"
