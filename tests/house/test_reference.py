"""The pages of docs/reference that are made from code say what the code says now, and leave nothing out."""

from __future__ import annotations

import ast
import re
from pathlib import Path
from typing import Annotated

import click
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthctl.finding_kinds import known_kinds
from remediator.api.route_table import ENDPOINTS
from remediator.playbook.playbook_loader import SHIPPED, load_policy
from tools.reference import commands, configuration, findings
from tools.reference.markdown import render_code, render_prose, render_table
from tools.reference.table import PAGES
from vocabulary.fault_catalogue.catalogue_file import load_catalogue

FOLDER = Path(__file__).parents[2] / "docs" / "reference"


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_what_the_code_says(name: str) -> None:
    written = (FOLDER / name).read_text() if (FOLDER / name).exists() else ""
    assert written == PAGES[name](), (
        f"docs/reference/{name} is not what the code says now; run 'make reference' and review the diff"
    )


@pytest.mark.parametrize("root", [root for _, root in configuration.FILES], ids=lambda root: root.__module__)
def test_every_key_of_a_configuration_says_what_it_means(root: type[msgspec.Struct]) -> None:
    silent = [
        f"{path}.{key.name}".lstrip(".")
        for path, struct, keys in configuration.iterate_sections(root)
        for key in keys
        if not key.meaning
    ]
    assert silent == [], "write the meaning as a comment on the key's line"


class _Inner(msgspec.Struct, frozen=True):
    """Inside."""

    deep: int = 1  # how deep


class _Sample(msgspec.Struct, frozen=True):
    """A sample. `told`: in the docstring.

    Args:
        args: under Args,
            on two lines.
    """

    line: str = "x"  # on its line
    # above it
    above: int = 2
    told: bool = False
    args: float | None = None
    inner: _Inner = _Inner()
    many: dict[str, _Inner] = {}
    bounded: Annotated[float, msgspec.Meta(gt=0)] = 0.5  # within brackets
    silent: tuple[str, ...] = ()


def test_meanings_stand_where_people_write_them() -> None:
    assert configuration.read_field_meanings(_Sample) == {
        "line": "on its line",
        "above": "above it",
        "told": "in the docstring",
        "args": "under Args,\n        on two lines.",
        "bounded": "within brackets",
    }


def test_sections_are_found_however_they_are_held() -> None:
    found = {
        path: [(k.name, k.kind, k.default) for k in keys] for path, _, keys in configuration.iterate_sections(_Sample)
    }
    assert list(found) == ["", "inner", "many.NAME"]
    assert ("deep", "whole number", "`1`") in found["inner"]
    assert ("bounded", "number > 0", "`0.5`") in found[""]
    assert ("args", "number or nothing", "none") in found[""]
    assert ("silent", "list of text", "none") in found[""]


def test_no_command_is_left_out_and_none_lacks_words() -> None:
    text = commands.render_commands_page()
    for name, program in commands.PROGRAMS:
        for path, command, _ in commands.walk_commands(name, program):
            assert command.help, f"'{path}' has no help"
            if not path.startswith("healthctl preflight "):
                assert f"{path}" in text


def test_an_option_stands_with_its_meaning() -> None:
    @click.command()
    @click.option("--when", metavar="TIME|never", help="a | b <c>")
    def sample(when: str) -> None:
        """Do it.

        \b
        as it
          stands
        """

    lines = commands.describe_command(sample, click.Context(sample, info_name="sample"))
    assert r"| `--when TIME\|never` | a \| b \<c> |" in lines
    assert lines[2:6] == ["```text", "as it", "  stands", "```"]


def test_every_call_of_the_api_is_there() -> None:
    text = (FOLDER / "routes.md").read_text()
    missing = [e.path for e in ENDPOINTS if f"`{e.method} {e.path.replace(':path', '')}`" not in text]
    assert missing == []


def test_every_kind_that_can_be_reported_is_there_with_an_answer() -> None:
    policy = load_policy([SHIPPED])
    documented = {kind.name for kind in findings.list_finding_kinds()}
    checks = {name.partition("/")[0] for name in documented}
    for kind in known_kinds(load_catalogue()):
        check = kind.partition("/")[0]
        if check not in {"xid", "sxid"}:
            assert kind in documented or (kind.endswith("/*") and check in checks), kind
    text = (FOLDER / "findings.md").read_text()
    rows = re.findall(r"^\| `([a-z_0-9]+/[a-z_0-9*-]+)` \|.* \| (.*?) \|$", text, re.MULTILINE)
    assert len(rows) > 150
    assert [kind for kind, rule in rows if not rule] == []
    assert all(f"| `{rule.name}` |" in text for rule in policy.rules)


@given(st.text())
def test_a_cell_never_breaks_a_table_or_becomes_a_link(text: str) -> None:
    assert len(render_table(["one"], [[render_prose(text)]])) == 4  # head, rule, one row, an empty line
    row = render_table(["one"], [[render_prose(text)]])[2]
    assert len(re.findall(r"(?<!\\)(?:\\\\)*\|", row)) == 2, "a backslash before a pipe of the text must not free it"
    outside = re.sub(r"``?[^`]+``?", "", render_prose(text))
    assert re.search(r"(?<!\\)(\\\\)*[<\[]", outside) is None


@given(st.text(min_size=1))
def test_code_stays_code(text: str) -> None:
    shown = render_code(text)
    assert "\n" not in shown
    assert not text.split() or shown.startswith("`")


def test_every_variable_of_the_environment_is_there_and_no_other() -> None:
    said = set(re.findall(r"\b(?:HEALTHD|HEALTHCTL)_[A-Z_]+\b", (FOLDER / "environment.md").read_text()))
    read = {
        name
        for house in ("healthd", "healthctl", "preflight", "remediator", "vocabulary")
        for path in (FOLDER.parents[1] / house).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        for name in re.findall(r"\b(?:HEALTHD|HEALTHCTL)_[A-Z_]+\b", node.value)
    }
    assert said == read, "write what it means into docs/reference/environment.md"
