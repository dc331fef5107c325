"""The table of threats names for each attack the tests that try it, and they are there."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
TABLE = (ROOT / "docs/explanation/threats.md").read_text()
NAMED = re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", TABLE)


def rows() -> list[list[str]]:
    """The cells of the table whose last column is `tried by`."""
    body = TABLE.partition("| tried by |")[2].partition("\n\n")[0].splitlines()[2:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in body]


def test_every_row_says_what_stands_in_the_way_what_does_not_and_who_tries() -> None:
    assert len(rows()) > 25
    for row in rows():
        assert len(row) == 5, row
        assert row[1], row
        assert row[2], row
        assert re.search(r"`tests/", row[4]), row


def test_every_test_that_is_named_is_there() -> None:
    for file, name in NAMED:
        source = (ROOT / file).read_text()
        assert not name or f"def {name}(" in source, f"{file}::{name}"


def test_every_test_of_an_attack_is_in_the_table() -> None:
    here = {f"tests/adversary/{path.name}" for path in Path(__file__).parent.glob("test_*.py")}
    assert here - {f"tests/adversary/{Path(__file__).name}"} <= {file for file, _ in NAMED}
