"""A sentence with a count reads well for one as well: `counted` (vocabulary.text.plurals) writes number and noun."""

from __future__ import annotations

import ast
import itertools
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSES = ("healthctl", "healthd", "preflight", "remediator", "vocabulary")
EXEMPT = (
    "healthd/trainer",
    "healthd/nvml",
    "remediator/web",
)  # the first two load no more than they must; pages count by filters
PLURAL = re.compile(r" (?:more |other )?(?!this|has|is|was|bytes)[a-z]+s\b")


def bare_plurals(source: str) -> Iterator[str]:
    """Every `{len(…)} nouns` in a formatted string."""
    for node in ast.walk(ast.parse(source)):
        parts = node.values if isinstance(node, ast.JoinedStr) else []
        for count, text in itertools.pairwise(parts):
            if (
                isinstance(count, ast.FormattedValue)
                and isinstance(count.value, ast.Call)
                and isinstance(count.value.func, ast.Name)
                and count.value.func.id == "len"
                and isinstance(text, ast.Constant)
                and (noun := PLURAL.match(str(text.value)))
            ):
                yield f"line {count.lineno}: {{{ast.unparse(count.value)}}}{noun.group()}"


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ('f"{len(x)} nodes"', ["line 1: {len(x)} nodes"]),
        ('f"and {len(x)} more nodes left"', ["line 1: {len(x)} more nodes"]),
        ("f\"{counted(len(x), 'node')}\"", []),
        ('f"{len(x)} bytes"', []),
        ('f"{len(x)} of them"', []),
    ],
)
def test_what_is_one(source: str, found: list[str]) -> None:
    assert list(bare_plurals(source)) == found


def test_no_count_stands_before_a_plural_that_may_be_wrong() -> None:
    files = (path for house in HOUSES for path in sorted((ROOT / house).rglob("*.py")))
    wrong = [
        f"{name}: {each}"
        for path in files
        if not (name := path.relative_to(ROOT).as_posix()).startswith(EXEMPT)
        for each in bare_plurals(path.read_text())
    ]
    assert not wrong, "write counted(len(…), 'noun') from vocabulary.text.plurals:\n" + "\n".join(wrong)
