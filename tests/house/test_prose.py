"""Prose as a ratchet: what docs/reference/glossary.md retired may not come back in documents, templates, comments and texts."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.test_tidy import PRODUCT, ROOT, name_of, tracked

GLOSSARY = ROOT / "docs" / "reference" / "glossary.md"

# Retired in one sense only, so a search cannot tell; each with the sense that stays.
AMBIGUOUS = {
    "centre": "a configuration key, an image, the middle of a distribution",
    "look": "what a person does",
    "over": "above",
    "slate": "a variable",
    "standing": "the database table of operator overrides, and nodes of a group test",
    "told": "a variable: what was reported",
    "word": "of text, of memory",
    "worth": "as in worth a retry",
}
# Values and names that other programs read keep their spelling.
INTERFACES = {
    "remediator/model/views.py": {"told nobody"},  # a value of the API
    "preflight/report/templates/": {"grave"},  # a class of the style sheet
}
CODE = re.compile(r"```.*?```|`[^`]*`|\{\{.*?\}\}|\{%.*?%\}", re.DOTALL)
TEMPLATES = [path for path in tracked(".j2", "NOTES.txt") if path.relative_to(ROOT).parts[0] != "tests"]
DOCUMENTS = [
    path
    for path in tracked(".md")
    if path.relative_to(ROOT).parts[0] in ("docs", "README.md") and path.resolve() != GLOSSARY
]
RULES = [*(ROOT / "dashboards" / "prometheus").glob("*.yaml"), *(ROOT / "playbooks").rglob("*.yaml")]


def retired_phrases(glossary: str) -> set[str]:
    """What the last column of every table with the heading "Not" lists, separated by commas."""
    phrases: set[str] = set()
    listed = False
    for line in glossary.splitlines():
        cells = [cell.strip() for cell in line.strip("| ").split("|")] if line.startswith("|") else []
        if not cells:
            listed = False
        elif line.rstrip("| ").endswith("| Not"):
            listed = True
        elif listed and not line.startswith("|-") and not line.endswith("| |"):
            phrases |= {phrase.strip() for phrase in cells[-1].split(",")}
    return phrases


PHRASES = retired_phrases(GLOSSARY.read_text()) - AMBIGUOUS.keys()
RETIRED = re.compile(rf"\b({'|'.join(sorted(map(re.escape, PHRASES), key=len, reverse=True))})\b", re.IGNORECASE)


def find_retired(path: Path, text: str) -> set[str]:
    """The retired phrases of a text, in lower case, without code and interfaces."""
    kept = {word for place, words in INTERFACES.items() if name_of(path).startswith(place) for word in words}
    prose = " ".join(CODE.sub(" ", text).split())
    return {found.lower() for found in RETIRED.findall(prose)} - kept


def prose_of_module(source: str) -> Iterator[str]:
    """Comments, docstrings, and strings with a space in them: one without is a name."""
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.string
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value.strip():
            yield node.value


def test_the_glossary_lists_what_is_retired() -> None:
    assert {"told nobody", "pieces of news", "keeper"} <= PHRASES
    assert AMBIGUOUS.keys() <= retired_phrases(GLOSSARY.read_text()), "remove the exception with its row"
    assert find_retired(GLOSSARY, "the alert is told nobody, `told nobody`") == {"told nobody"}


@pytest.mark.parametrize("path", [*DOCUMENTS, *TEMPLATES, *RULES], ids=name_of)
def test_a_document_keeps_to_the_terms(path: Path) -> None:
    assert find_retired(path, path.read_text()) == set(), "docs/reference/glossary.md has the term"


def test_the_product_speaks_in_terms() -> None:
    found = {
        name_of(path): words
        for path in PRODUCT
        if (words := set().union(*(find_retired(path, text) for text in prose_of_module(path.read_text()))))
    }
    assert found == {}, "docs/reference/glossary.md has the term"
