from __future__ import annotations

from collections.abc import Callable
from xml.etree import ElementTree as ET

import msgspec
import pytest

from preflight.report.junit_report import render_junit
from preflight.results import Document, Outcome, Verdict

NAMES = ["passing", "failing", "hanging", "huge", "hostile"]
TAGS = {"failure": (Outcome.FAIL, Outcome.HANG), "error": (Outcome.ERROR,), "skipped": (Outcome.NOT_RUN, Outcome.NOT_APPLICABLE)}  # fmt: skip


def parsed(text: str) -> ET.Element:
    return ET.fromstring(text)  # noqa: S314 - our own


def test_the_whole_file(passing: Document, hanging: Document, golden: Callable[[str, str], None]) -> None:
    golden("preflight/report/two.junit.xml", render_junit([passing, hanging]))


@pytest.mark.parametrize("name", NAMES)
def test_a_reader_counts_what_the_document_says(name: str, request: pytest.FixtureRequest) -> None:
    document: Document = request.getfixturevalue(name)
    suites = parsed(render_junit([document]))
    suite = suites[0]
    cases = suite.findall("testcase")
    assert len(cases) == len(document.results) + 1 == int(suite.get("tests", ""))
    for case, result in zip(cases, document.results, strict=False):
        expected = [tag for tag, outcomes in TAGS.items() if result.outcome in outcomes]
        assert [child.tag for child in case if child.tag in TAGS] == expected
    counted = {"failures": "failure", "errors": "error", "skipped": "skipped"}
    for attribute, tag in counted.items():
        assert int(suite.get(attribute, "")) == sum(case.find(tag) is not None for case in cases)
        assert suites.get(attribute) == suite.get(attribute)


@pytest.mark.parametrize("verdict", Verdict)
def test_only_a_node_that_passed_looks_good_to_a_reader(huge: Document, verdict: Verdict) -> None:
    """Also if every case succeeded or was skipped: readers take what is skipped for good."""
    said = msgspec.structs.replace(huge, verdict=verdict, reason=verdict.value, reasons=(verdict.value,))
    suite = parsed(render_junit([said]))[0]
    bad = int(suite.get("failures", "")) + int(suite.get("errors", ""))
    assert (bad == 0) is (verdict is Verdict.PASS)


def test_children_stand_in_the_order_that_strict_readers_want(failing: Document) -> None:
    order = ["properties", "skipped", "error", "failure", "system-out"]
    for case in parsed(render_junit([failing])).iter("testcase"):
        tags = [child.tag for child in case]
        assert tags == sorted(tags, key=order.index)


def test_names_of_cases_are_unique_and_stable(failing: Document) -> None:
    cases = [(case.get("classname"), case.get("name")) for case in parsed(render_junit([failing])).iter("testcase")]
    assert len(set(cases)) == len(cases)
    assert ("preflight.host_link", "host_link on cuda:3") in cases
