"""What a post-mortem looks like, and that nobody who writes a log line or names a job decides that."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from remediator.postmortem.document_rendering import DocumentForm, content_policy, render_document
from remediator.postmortem.postmortem_document import PostMortem
from remediator.postmortem.postmortem_facts import build_post_mortem
from remediator.postmortem.text_escaping import escape_control_characters, escape_markdown, fence_code_block
from tests.unit.remediator.postmortem.sample_incident import bundle, story
from vocabulary.messages.evidence_bundle import Missing
from vocabulary.messages.wire import decode_message

HOSTILE = [
    "{{7*7}}",
    "{% for x in ().__class__.__base__.__subclasses__() %}{{ x }}{% endfor %}",
    "<script>alert(1)</script>",
    "</title></style></pre><img src=x onerror=alert(1)>",
    "a|b|c",
    "`x` ```` y",
    "one\ntwo\r\nthree\u2028four",
    "\x1b[2J\x1b]0;owned\x07",
    "\u202egnp.exe",
    "[click](javascript:alert(1)) ![x](http://evil/x.png) <http://evil> www.evil.example",
    "# heading",
    "- item",
    "1. item",
    "    indented",
    "*bold* _it_ ~~no~~ $x$ \\| &lt; &#x41;",
    '" onmouseover="alert(1)',
    "'); DROP TABLE evidence; --",
    "\x00\ud800",
    "",
]
VOID = {"meta", "path", "br"}


def document(text: str, line: str = "a line") -> PostMortem:
    """The story, with `text` wherever somebody else chooses the words."""
    told = story(text, evidence=[bundle(text, (line, text))], returns={text: 1_790_000_183.0})
    incident = msgspec.structs.replace(told.incident, title=text, outcome=text or "x", rule=text)
    named = told.evidence[0]
    series = tuple(msgspec.structs.replace(s, name=f"temperature {text}", unit=text) for s in named.series[:4])
    named = msgspec.structs.replace(named, series=series, missing=(Missing(text, text),), order=text)
    parts: dict[str, Any] = {
        "incident": incident,
        "findings": [msgspec.structs.replace(f, summary=text, cleared_by=text or "x") for f in told.findings],
        "events": [msgspec.structs.replace(e, text=text, actor=text) for e in told.events],
        "decisions": [
            msgspec.structs.replace(d, reason=text, policy=text, rule=text, guards=(text,)) for d in told.decisions
        ],
        "actions": [msgspec.structs.replace(a, detail=text) for a in told.actions],
        "evidence": [named],
    }
    return build_post_mortem(msgspec.structs.replace(told, **parts))


class Skeleton(HTMLParser):
    """The elements of a page and their attributes, without the words; and the words."""

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, tuple[tuple[str, str | None], ...]]] = []
        self.words: list[str] = []
        self.feed(page)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, tuple((name, None if name == "d" else value) for name, value in attrs)))

    def handle_endtag(self, tag: str) -> None:
        self.elements.append((f"/{tag}", ()))

    def handle_data(self, data: str) -> None:
        self.words.append(data)


def rows_of(page: str) -> list[tuple[str, int]]:
    """How each line of Markdown begins, and how many cells it has; the block of code is left out."""
    page = re.sub(r"(?ms)^(`{3,})text$.*?^\1$", "", page)
    return [(line[:2], len(re.findall(r"(?<!\\)\|", line))) for line in page.split("\n")]


def words(text: str) -> str:
    """As they are to be read."""
    return escape_control_characters(text)


def test_the_golden_markdown(golden: Callable[[str, str], None]) -> None:
    golden("postmortem/gpu_lost.md", render_document(build_post_mortem(story()), DocumentForm.MARKDOWN))


def test_the_golden_page(golden: Callable[[str, str], None]) -> None:
    golden("postmortem/gpu_lost.html", render_document(build_post_mortem(story()), DocumentForm.HTML))


def test_the_json_is_the_document() -> None:
    told = build_post_mortem(story())
    assert decode_message(render_document(told, DocumentForm.JSON), PostMortem) == told


@pytest.mark.parametrize("form", list(DocumentForm))
def test_the_same_story_gives_the_same_bytes(form: DocumentForm) -> None:
    assert render_document(build_post_mortem(story()), form) == render_document(build_post_mortem(story()), form)


@pytest.mark.parametrize("text", HOSTILE)
def test_html_keeps_its_shape_whatever_is_written_into_it(text: str) -> None:
    page = Skeleton(render_document(document(text), DocumentForm.HTML))
    plain = Skeleton(render_document(document("harmless"), DocumentForm.HTML))
    assert page.elements == plain.elements
    assert "script" not in {tag for tag, _ in page.elements}
    if text.strip():
        assert words(text) in "".join(page.words)


@pytest.mark.parametrize("text", HOSTILE)
def test_markdown_keeps_its_shape_whatever_is_written_into_it(text: str) -> None:
    page = render_document(document(text), DocumentForm.MARKDOWN)
    assert rows_of(page) == rows_of(render_document(document("harmless"), DocumentForm.MARKDOWN))
    outside = re.sub(r"(?ms)^(`{3,})text$.*?^\1$", "", page)
    assert "<" not in outside
    assert not re.search(r"(?<!\\)\]\(", outside), "no link"


@pytest.mark.parametrize(
    "text", [text.replace("\ud800", "") for text in HOSTILE]
)  # no wire message holds half a letter
@pytest.mark.parametrize("form", list(DocumentForm))
def test_nothing_that_a_terminal_could_act_upon_comes_out(form: DocumentForm, text: str) -> None:
    page = render_document(document(text, line=text), form)
    if form is DocumentForm.JSON:
        assert decode_message(page, PostMortem).title == text
    assert all(c.isprintable() or c == "\n" for c in page)


def test_templates_calculate_nothing_of_what_they_are_given() -> None:
    for form in DocumentForm:
        page = render_document(document("{{7*7}} {{ self.__init__ }}"), form)
        assert "7*7" in page.replace("\\", "")
        assert "TemplateReference" not in page


def test_the_page_loads_nothing_and_runs_nothing() -> None:
    page = render_document(build_post_mortem(story()), DocumentForm.HTML)
    style = page.partition("<style>")[2].partition("</style>")[0]
    assert f'content="{content_policy(style)}"'.replace("'", "&#39;") in page
    elements = Skeleton(page).elements
    loading = {name for _, attributes in elements for name, _ in attributes} & {"src", "href", "style", "onload"}
    assert not loading
    assert not {"script", "link", "img", "iframe", "object", "form"} & {tag for tag, _ in elements}


def test_every_element_is_closed() -> None:
    stack: list[str] = []
    for tag, _ in Skeleton(render_document(build_post_mortem(story()), DocumentForm.HTML)).elements:
        if tag.startswith("/"):
            if tag[1:] not in VOID:
                assert stack.pop() == tag[1:]
        elif tag not in VOID:
            stack.append(tag)
    assert stack == []


def test_a_chart_has_words_for_those_who_do_not_see_it() -> None:
    page = render_document(build_post_mortem(story()), DocumentForm.HTML)
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(charts) == 5
    for number, chart in enumerate(charts, 1):
        assert f'aria-labelledby="chart{number}t chart{number}d"' in chart
        assert f'<title id="chart{number}t">' in chart
        assert "before" in chart.partition(f'<desc id="chart{number}d">')[2].partition("</desc>")[0]


@pytest.mark.parametrize("missing", ["evidence", "findings", "decisions", "actions", "events"])
def test_it_can_be_told_with_anything_missing(missing: str) -> None:
    told = build_post_mortem(msgspec.structs.replace(story(), **{missing: []}))
    for form in DocumentForm:
        assert "gpu-17" in render_document(told, form)
    json.loads(render_document(told, DocumentForm.JSON))


@given(st.text())
def test_markdown_of_any_text_is_one_line_without_markup(text: str) -> None:
    escaped = escape_markdown(text)
    assert "\n" not in escaped
    assert escaped.isprintable()
    assert not re.search(r"(?<!\\)(\\\\)*[`*\[\]{}|#~!$<>]", escaped)
    assert "://" not in escaped


@given(st.lists(st.text()))
def test_a_fence_holds_any_lines(lines: list[str]) -> None:
    block = fence_code_block(lines).split("\n")
    fence = re.match("`+", block[0])
    assert fence is not None
    assert block[-1] == fence[0]
    assert len(block) == len(lines) + 2
    assert not any(line.strip().startswith(fence[0]) for line in block[1:-1])


@given(st.text(max_size=30))
@hypothesis_settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_no_text_changes_the_shape_of_the_page(text: str) -> None:
    plain = Skeleton(render_document(document("harmless"), DocumentForm.HTML))
    assert Skeleton(render_document(document(text), DocumentForm.HTML)).elements == plain.elements
