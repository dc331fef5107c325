"""How views are shown: to people with and without a terminal, to programs, and again and again."""

from __future__ import annotations

import json
import os
import pty
import re
import select
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import click
import click.testing
import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from healthctl.cli.screen import Screen, overwrite_screen, view_options
from healthctl.exit_codes import Exit
from healthctl.rendering.blocks import (
    Block,
    Cell,
    Column,
    Facts,
    Line,
    Rows,
    Tone,
    format_json,
    format_yaml,
    render_plain,
    state_cell,
)
from healthctl.rendering.terminal import render_terminal

STYLE = re.compile(r"\x1b\[[0-9;]*m")
Row = tuple[str, str, str]
COLUMNS: list[Column[Row]] = [
    Column("NODE", lambda row: row[0]),
    Column("STATE", lambda row: state_cell(row[1])),
    Column("SERIAL", lambda row: f"s-{row[0]}", wide=True),
    Column("WHY", lambda row: row[2], prose=True),
]
LONG = "XID 79 on GPU 3, seen by the kernel; " * 4
ROWS: list[Row] = [("gpu-node-17", "quarantined", LONG), ("gpu-node-18", "healthy", "")]
texts = st.text(alphabet=st.characters(exclude_categories=["Cs"]))


def page(rows: list[Row]) -> list[Block]:
    return [
        Facts([("cluster", "c [red]1[/red]"), ("blocked", Cell("mode is observe", Tone.WARN)), ("empty", "")]),
        Rows(rows, COLUMNS, empty="no node"),
        Line("next:"),
        Line(Cell("healthctl incidents", Tone.BAD), 2),
    ]


def test_a_pipe_gets_a_line_for_each_row_and_nothing_but_text(golden: Callable[[str, str], None]) -> None:
    golden("healthctl/screen_pipe.txt", render_plain(page(ROWS)) + "\n")
    assert "s-gpu-node-17" in render_plain(page(ROWS), wide=True)
    assert "no node" in render_plain(page([]))


def test_a_terminal_of_80_columns_shows_all_of_it(golden: Callable[[str, str], None]) -> None:
    shown = render_terminal(page(ROWS), width=80, color=False)
    lines = [line.rstrip() for line in STYLE.sub("", shown).splitlines()]
    golden("healthctl/screen_terminal.txt", "\n".join(lines) + "\n")
    assert max(map(len, lines)) <= 80
    assert "✗ quarantined" in shown
    assert "\x1b[1;31m" in render_terminal(page(ROWS), width=80)
    assert not re.search(r"\x1b\[[0-9;]*3[0-7]m", shown), "no colour where none is wanted"


def fitted(rows: list[Row], width: int) -> list[str]:
    return STYLE.sub("", render_terminal([Rows(rows, COLUMNS)], width=width)).splitlines()


def test_a_sentence_that_has_no_room_stands_below_its_row_whole() -> None:
    why = "XID 79 on GPU 3, seen by the kernel; XID 48 too"
    assert fitted([("gpu-node-17", "quarantined", why), ("n", "healthy", "")], 52) == [
        "NODE         STATE",
        "    WHY",
        "gpu-node-17  ✗ quarantined",
        f"    {why}",
        "n            ✓ healthy",
    ]
    assert len(fitted([("gpu-node-17", "quarantined", why)], 80)) == 2, "with room it stands beside"
    assert len(fitted([("gpu-node-17", "quarantined", "short")], 52)) == 2, "and a short one does too"


@given(st.text("ab-", min_size=1, max_size=30), st.sampled_from(["healthy", "lost"]), st.text("xy ,", max_size=90))
def test_nothing_is_cut_off_at_any_width(node: str, word: str, why: str) -> None:
    for width in (30, 52, 80, 200):
        lines = fitted([(node, word, why)], width)
        assert max(map(len, lines)) <= width
        for text in (node, word, why):
            assert not Counter("".join(text.split())) - Counter("".join(lines))


@given(texts, texts, texts, st.integers(20, 120))
def test_nothing_from_outside_steers_a_terminal_or_reads_as_markup(one: str, two: str, three: str, width: int) -> None:
    blocks = page([(one, two, three)])
    blocks += [Facts([("name", one), ("toned", Cell(two, Tone.BAD))]), Line(three)]
    left = STYLE.sub("", render_terminal(blocks, width=width))
    assert all(line.isprintable() for line in left.split("\n"))
    assert all(line.isprintable() for line in render_plain(blocks).split("\n"))


@pytest.mark.parametrize("evil", ["[red]x[/red]", "[/]", "[link=http://e]x[/link]", ":skull:", "[bold"])
def test_markup_is_text(evil: str) -> None:
    shown = render_terminal(
        [Line(evil), Facts([("f", evil)]), Rows([(evil, evil, evil)], COLUMNS), Rows([], COLUMNS, evil)]
    )
    assert STYLE.sub("", shown).count(evil) == 6


@given(st.recursive(texts | st.integers(-(2**53), 2**53) | st.none(), lambda inner: st.dictionaries(texts, inner)))
def test_documents_say_the_same_and_only_what_is_printable(document: object) -> None:
    for text, read in ((format_json(document), json.loads), (format_yaml(document), yaml.safe_load)):
        assert read(text) == document
        assert all(line.isprintable() for line in text.split("\n"))


@pytest.mark.parametrize(
    ("output", "says"), [("json", '{\n  "a": 1\n}\n'), ("yaml", "---\na: 1\n"), ("wide", "a  1\n")]
)
def test_what_output_may_be(output: str, says: str) -> None:
    assert run("-o", output).output == says
    assert run("-o", "xml").exit_code == Exit.USAGE


def test_a_command_says_how_it_ends() -> None:
    assert run("--bad").exit_code == Exit.PROBLEM
    assert run().exit_code == Exit.OK


def run(*arguments: str) -> click.testing.Result:
    return click.testing.CliRunner().invoke(command, arguments)


@click.command()
@click.option("--bad", is_flag=True)
@view_options
def command(screen: Screen, *, bad: bool) -> None:
    screen.show({"a": 1}, lambda: [Facts([("a", "1")])])
    screen.code = Exit.PROBLEM if bad else Exit.OK


def test_what_does_not_fit_a_terminal_s_height_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LINES", "5")
    assert "… 7 more lines" in overwrite_screen("\n".join("abcdefghij"))
    assert overwrite_screen("a").startswith("\x1b[Ha\x1b[0m\x1b[K\n")


WATCHED = "import sys; sys.path.insert(0, {0!r}); from test_screen_command import count; count()"
COUNTING = """
import click
from healthctl.rendering.blocks import Line
from healthctl.cli.screen import view_options
from healthctl.api_client.remediator_client import ServerUnreachable
looks = iter(range(10**9))
@click.command()
@view_options
def count(screen):
    look = next(looks)
    if look == 1:
        raise ServerUnreachable("no answer")
    screen.show({"look": look}, lambda: [Line(f"look {look}")])
"""


@pytest.fixture
def watched(tmp_path: Path) -> list[str]:
    (tmp_path / "test_screen_command.py").write_text(COUNTING)
    return [sys.executable, "-c", WATCHED.format(str(tmp_path)), "--watch=0.2"]


def test_watching_through_a_pipe_appends_outlasts_an_outage_and_ends_well(watched: list[str]) -> None:
    with subprocess.Popen(
        [*watched, "-o", "json"], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        try:
            assert process.stdout is not None
            assert process.stderr is not None
            looks = [process.stdout.readline() for _ in range(6)]
            assert [line for line in looks if "look" in line] == ['  "look": 0\n', '  "look": 2\n']
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
            assert "no answer; retrying every 0.2 s" in process.stderr.read()
        finally:
            process.kill()


def test_watching_on_a_terminal_draws_in_place_and_ends_well(watched: list[str]) -> None:
    ours, theirs = pty.openpty()
    with subprocess.Popen(watched, stdout=theirs, stderr=theirs, env=os.environ | {"TERM": "xterm"}) as process:
        try:
            os.close(theirs)
            seen = b""
            while b"look 2" not in seen:
                assert select.select([ours], [], [], 60)[0], seen
                seen += os.read(ours, 4096)
            assert b"\x1b[H" in seen
            outage = seen.partition(b"no answer; retrying")[2]
            assert b"look 0" in outage.partition(b"\x1b[H")[0], "what was known last still stands there, with its time"
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            os.close(ours)


def test_a_table_with_nothing_to_say_takes_no_lines_anywhere() -> None:
    blocks: list[Block] = [Line("before"), Rows((), COLUMNS), Line("after")]
    assert render_plain(blocks).split() == ["before", "after"]
    assert STYLE.sub("", render_terminal(blocks, width=80)).splitlines() == render_plain(blocks).splitlines()
