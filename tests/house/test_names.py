"""Names and sizes as ratchets: where things live, how functions are called, how much there is. Limits may only go down."""

from __future__ import annotations

import ast
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.house.test_tidy import PRODUCT, ROOT, name_of, tracked

ROOT_MODULES = {"healthd": 12, "remediator": 12, "healthctl": 12, "preflight": 12, "vocabulary": 15}
ONE_WORD_SHARE = 0.08
MODULES_WITH_ONE_PUBLIC_NAME = 5
FILES_WITH_ONE_NAME = 3
PRODUCT_LINES = 106_000
WORDS_TO_READ = 90_000

# Names that a framework or a registry asks for: they may stand in any number of modules.
REQUIRED_NAMES = {
    "main": "entry points",
    "run": "preflight's tests, which are found by name",
    "upgrade": "database migrations",
    "downgrade": "database migrations",
}
REQUIRED_FILES = {"__init__", "__main__", "main", "config"}

# Pages made from code are there to look things up in, not to read.
GENERATED = "Made by `make reference`"

# Module names that nobody would search for; docs/reference/glossary.md has the terms that replace them.
RETIRED_MODULES = {
    "again", "alike", "asked", "by_hand", "called", "door", "endings", "gravity", "hands", "hands_off", "keeper",
    "looking", "lookout", "pretence", "roster", "second_look", "slate", "standing", "tally", "telling", "told",
    "unheard", "voice", "whom", "words", "worth",
}  # fmt: skip


def functions() -> Iterator[tuple[str, str]]:
    """File and name of every function that a module of the product defines at its top."""
    for path in PRODUCT:
        for node in ast.parse(path.read_text()).body:
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                yield name_of(path), node.name


@pytest.mark.parametrize(("package", "most"), ROOT_MODULES.items())
def test_the_root_of_a_package_is_short(package: str, most: int) -> None:
    modules = [path for path in PRODUCT if path.parent == ROOT / package]
    assert len(modules) <= most, "put it into the subpackage of its idea"


def test_functions_say_verb_and_object() -> None:
    names = [name for _, name in functions()]
    one_word = [name for name in names if "_" not in name.strip("_")]
    assert len(one_word) <= ONE_WORD_SHARE * len(names), Counter(one_word).most_common(20)


def test_a_public_function_name_stands_in_few_modules() -> None:
    places = defaultdict(set)
    for place, name in functions():
        if not name.startswith("_") and name not in REQUIRED_NAMES:
            places[name].add(place)
    assert {name: sorted(at) for name, at in places.items() if len(at) > MODULES_WITH_ONE_PUBLIC_NAME} == {}


def test_a_file_name_stands_in_few_folders() -> None:
    names = Counter(path.stem for path in PRODUCT)
    common = {name: count for name, count in names.items() if count > FILES_WITH_ONE_NAME}
    assert common.keys() <= REQUIRED_FILES, common


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_a_module_has_a_name_that_can_be_searched_for(path: Path) -> None:
    retired = RETIRED_MODULES & {path.stem, *path.relative_to(ROOT).parts[:-1]}
    assert retired == set(), "docs/reference/glossary.md has the term"


def test_the_product_does_not_grow_by_itself() -> None:
    assert sum(path.read_text().count("\n") for path in PRODUCT) <= PRODUCT_LINES, "delete something first"


def test_documents_can_be_read() -> None:
    pages = [path for path in tracked(".md") if path.is_relative_to(ROOT / "docs") or path == ROOT / "README.md"]
    texts = {name_of(path): path.read_text() for path in pages}
    words = {name: len(text.split()) for name, text in texts.items() if GENERATED not in text}
    assert sum(words.values()) <= WORDS_TO_READ, Counter(words).most_common(10)
