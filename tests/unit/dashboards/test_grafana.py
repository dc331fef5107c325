"""The dashboards' files are what the generator makes, and ask only for metrics that exporters have."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from healthd.source_monitoring.source_registry import SOURCES

pytest.importorskip("grafana_foundation_sdk")  # it needs Python 3.11

from dashboards.__main__ import FOLDER, render_dashboard_json  # after the line above
from dashboards.board_layout import Board
from dashboards.boards import BOARDS

ROOT = Path(__file__).parents[3]
RECORDING = (ROOT / "dashboards/prometheus/recording.yaml").read_text()
ALERTS = (ROOT / "dashboards/prometheus/alerts.yaml").read_text()
NAMES = re.compile(r"\b(?:healthd|remediator)_[a-z0-9_]+")
RECORDED = re.compile(r"\b[a-z_]+:(?:healthd|remediator)_[a-z_]+:[a-z]+")
WORDS_OF_HISTOGRAMS = re.compile(r"_(bucket|sum|count)$")


def panels(board: Board) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((FOLDER / f"{board.name}.json").read_text())["panels"]
    return found


def questions(board: Board) -> Iterator[str]:
    document = json.loads((FOLDER / f"{board.name}.json").read_text())
    for panel in document["panels"]:
        for target in panel.get("targets", ()):
            yield target["expr"]
    for variable in document["templating"]["list"]:
        if variable["type"] == "query":
            yield variable["query"]["query"]
    for annotation in document["annotations"]["list"]:
        yield annotation["expr"]


@pytest.fixture(scope="module")
def exported() -> set[str]:
    """Every metric that either exporter may show, by name."""
    pages = [path.read_text() for path in (ROOT / "tests/golden").glob("*/*.prom")]
    of_sources = {m.name for source in SOURCES for family in source.metrics for m in family.metrics}
    named = {name for page in pages for name in re.findall(r"^# TYPE (\S+)", page, re.MULTILINE)}
    return named | of_sources | {"healthd_build_info"}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_a_file_is_what_the_generator_makes(board: Board) -> None:
    path = FOLDER / f"{board.name}.json"
    assert path.read_text() == render_dashboard_json(board), "write them anew: python -m dashboards"


def test_there_is_no_file_that_nothing_makes() -> None:
    assert {path.stem for path in FOLDER.glob("*.json")} == {board.name for board in BOARDS}


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_dashboards_ask_for_what_is_exported_or_recorded(board: Board, exported: set[str]) -> None:
    recorded = set(re.findall(r"record: (\S+)", RECORDING))
    for question in questions(board):
        assert set(RECORDED.findall(question)) <= recorded, question
        named = {WORDS_OF_HISTOGRAMS.sub("", name) for name in NAMES.findall(RECORDED.sub("", question))}
        assert named <= exported, question


@pytest.mark.parametrize("rules", [RECORDING, ALERTS], ids=["recording", "alerts"])
def test_rules_ask_for_what_is_exported(rules: str, exported: set[str]) -> None:
    named = set(NAMES.findall(RECORDED.sub("", "\n".join(line.split(" #")[0] for line in rules.splitlines()))))
    assert named
    assert {name.removesuffix("_bucket") for name in named} <= exported


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_every_panel_says_what_it_shows_and_in_what(board: Board) -> None:
    shown = [panel for panel in panels(board) if panel["type"] != "row"]
    assert len({panel["id"] for panel in panels(board)}) == len(panels(board))
    named = [(panel["title"], panel["type"]) for panel in shown]
    assert len(set(named)) == len(named), "two panels of one kind and name"
    for panel in shown:
        assert panel["description"].endswith("."), panel["title"]
        assert panel["targets"], panel["title"]
        unit = panel["fieldConfig"]["defaults"].get("unit")
        in_words = (
            panel["fieldConfig"]["defaults"].get("mappings") or panel.get("options", {}).get("textMode") == "name"
        )
        assert unit or in_words or panel["type"] == "table", panel["title"]


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)
def test_every_question_keeps_to_the_chosen_cluster(board: Board) -> None:
    for panel in panels(board):
        for target in panel.get("targets", ()):
            assert 'cluster=~"$cluster"' in target["expr"], panel["title"]


def test_no_panel_lies_over_another() -> None:
    for board in BOARDS:
        taken: dict[tuple[int, int], str] = {}
        for panel in panels(board):
            place = panel["gridPos"]
            for x in range(place["x"], place["x"] + place["w"]):
                for y in range(place["y"], place["y"] + place["h"]):
                    assert taken.setdefault((x, y), panel["title"]) == panel["title"], board.name
                    assert x < 24


def test_marks_show_only_names_that_cannot_hold_markup() -> None:
    for board in BOARDS:
        for annotation in json.loads((FOLDER / f"{board.name}.json").read_text())["annotations"]["list"]:
            shown = annotation["titleFormat"] + annotation["textFormat"] + annotation["tagKeys"]
            assert set(re.findall(r"\w+", shown)) <= {"node", "incident"}, "Grafana shows these as HTML"


def test_a_name_in_a_link_is_encoded() -> None:
    for board in BOARDS:
        text = (FOLDER / f"{board.name}.json").read_text()
        for url in re.findall(r'"url": "([^"]*)"', text):
            for variable in re.findall(r"\$\{([^}]*)\}", url):
                name, _, how = variable.partition(":")
                assert how in ("percentencode", "queryparam") or name in ("web", "datasource"), url
            assert not re.search(r"=\$\{\w+:queryparam\}", url), "that format brings its own name"
