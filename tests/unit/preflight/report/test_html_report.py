from __future__ import annotations

import base64
import hashlib
import re
from html.parser import HTMLParser

import msgspec
import pytest

from preflight.report.html_report import render_html
from preflight.results import Document, Expectation, Figure, Outcome, Result, Source, Verdict

NAMES = ["passing", "failing", "hanging", "huge", "hostile"]
VOID = {"meta", "rect", "path", "br"}


class Page(HTMLParser):
    """What a browser would make of it, strictly."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str]] = []
        self.words: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert not self._open, self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value or "") for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        assert self._open, f"</{tag}> closes nothing"
        assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.words.append(data)


@pytest.mark.parametrize("name", NAMES)
def test_the_page_is_whole_runs_nothing_and_loads_nothing(name: str, request: pytest.FixtureRequest) -> None:
    page = Page(render_html([request.getfixturevalue(name)]))
    assert not {"script", "link", "img", "iframe", "object", "form", "b:"} & set(page.tags)
    for tag, attribute, value in page.attributes:
        assert not attribute.startswith("on")
        assert attribute not in {"style", "src", "srcset", "data"}
        assert attribute != "href" or value.startswith("#"), (tag, value)
    ids = [value for _, attribute, value in page.attributes if attribute == "id"]
    assert len(ids) == len(set(ids))


def test_the_policy_allows_the_one_stylesheet_and_nothing_else(failing: Document) -> None:
    text = render_html([failing])
    style = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert style is not None
    digest = base64.b64encode(hashlib.sha256(style[1].encode()).digest()).decode()
    policy = next(
        v for tag, name, v in Page(text).attributes if tag == "meta" and name == "content" and "default-src" in v
    )
    assert policy == f"default-src 'none'; style-src 'sha256-{digest}'; base-uri 'none'; form-action 'none'"
    assert "@import" not in style[1]
    assert "url(" not in style[1]


def test_what_a_document_says_stays_words(hostile: Document) -> None:
    text = render_html([hostile])
    assert "</script><b>" not in text
    assert "\x1b" not in text
    assert "\u202e" not in text
    assert any("</script><b>&\\x1b[2J\\u202e" in words for words in Page(text).words)


def test_what_is_wrong_stands_before_everything_that_is_not(failing: Document) -> None:
    text = render_html([failing])
    order = [
        text.index(words)
        for words in (">fail</span>", "Failures", "memory_pattern on cuda:5", "<h2>Tests", "<h2>Figures")
    ]
    assert order == sorted(order)


def test_a_figure_out_of_its_bounds_is_marked_on_its_device_only(failing: Document) -> None:
    text = render_html([failing])
    marked = re.findall(r'<div class="line bad"><span>([^<]*)</span>', text)
    assert marked == ["cuda:3", "cuda:3"]
    assert 'class="line bad"' not in render_html([msgspec.structs.replace(failing, results=failing.results[:1])])


def test_the_worst_of_several_comes_first_and_each_can_be_reached(
    passing: Document, failing: Document, hanging: Document
) -> None:
    unsure = msgspec.structs.replace(passing, node="unsure", verdict=Verdict.INCONCLUSIVE, reasons=("x: no result",))
    text = render_html([msgspec.structs.replace(passing, node="good"), unsure, failing])
    targets = re.findall(r'<a href="#(d\d)">([^<]*)</a>', text)
    assert [node for _, node in targets] == ["gpu-node-17", "unsure", "good"]
    assert all(f'id="{mark}"' in text for mark, _ in targets)


def test_bounds_of_one_source_that_differ_by_device_are_one_line(passing: Document) -> None:
    results = tuple(
        Result(test="t", outcome=Outcome.PASS, device=f"cuda:{number}", figures=(Figure(name="rate", value=9.0, unit="GB/s", expected=(
            Expectation(source=Source.SIBLINGS, words=f"others reach {number}", at_least=5.0 + number),
            Expectation(source=Source.SKU, words="the table", at_least=4.0, fails=False),
        )),))
        for number in range(3)
    )  # fmt: skip
    words = "".join(Page(render_html([msgspec.structs.replace(passing, results=results)])).words)
    assert "≥ 5 to 7 GB/s siblings: others reach 0 (of cuda:0)" in words
    assert "≥ 4 GB/s product table: the table (a remark only)" in words


def test_pairs_are_a_matrix_and_not_figures_too(failing: Document, passing: Document) -> None:
    text = render_html([failing])
    assert text.count('<table class="pairs">') == 1
    assert len(re.findall(r'<td class="h\d', text)) == 56
    assert text.count(" miss") - text.count("td.miss") == 2
    assert text.count("<figcaption><b>pair_rate</b>") == 1  # the median of each device
    assert '<table class="pairs">' not in render_html([passing])


def test_a_document_of_nothing_is_a_page(passing: Document) -> None:
    Page(render_html([msgspec.structs.replace(passing, results=(), devices=(), software={})]))
    Page(render_html([]))
