"""House rules as tests. A limit is a number here; every exception carries its reason; limits may only go down."""

from __future__ import annotations

import ast
import re
import statistics
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
HOUSES = ("vocabulary", "healthd", "preflight", "remediator", "healthctl")
FILE_LINES_MAX = 400
FILE_LINES_MEDIAN_MAX = 180
FUNCTION_LINES_MAX = 60
PARAMETERS_MAX = 7
MOCKS_PER_TEST_MAX = 0.1

# Names that say nothing, each with what to do instead.
BANNED_NAMES = {
    "utils": "name the file after what it holds",
    "util": "name the file after what it holds",
    "helpers": "name the file after what it holds",
    "common": "put it where its users are, or into the vocabulary",
    "misc": "name the file after what it holds",
    "manager": "say what it does: engine, journal, launcher",
}
BANNED_TEXT = {
    r"\b(TODO|FIXME|XXX|HACK)\b": "open an issue instead",
    r"/(home|Users|root)/\w": "no path of anybody's machine",
}


def tracked(*suffixes: str) -> list[Path]:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, check=True, capture_output=True, text=True).stdout.split(
        "\n"
    )
    return [ROOT / name for name in listed if name.endswith(suffixes) and (ROOT / name).exists()]


PYTHON = tracked(".py")
PRODUCT = [path for path in PYTHON if path.relative_to(ROOT).parts[0] in HOUSES]
TESTS = [path for path in PYTHON if path.relative_to(ROOT).parts[0] == "tests"]


def name_of(path: Path) -> str:
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", PYTHON, ids=name_of)
def test_a_file_is_short_and_does_one_thing(path: Path) -> None:
    source = path.read_text()
    assert source.count("\n") <= FILE_LINES_MAX, "split it by idea"
    assert path.stem not in BANNED_NAMES, BANNED_NAMES.get(path.stem)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MAX, f"{node.name} has {length} lines"
            parameters = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
            exempt = (
                "tests" in path.parts or node.decorator_list
            )  # fixtures and command-line options arrive as arguments
            assert exempt or len(parameters) <= PARAMETERS_MAX + 1, f"{node.name} takes {len(parameters)}"


@pytest.mark.parametrize("path", PRODUCT, ids=name_of)
def test_product_code_says_nothing_banned(path: Path) -> None:
    for number, line in enumerate(path.read_text().split("\n"), 1):
        for pattern, instead in BANNED_TEXT.items():
            assert re.search(pattern, line) is None, f"{name_of(path)}:{number}: {instead}"


def test_the_median_file_is_readable_in_one_sitting() -> None:
    assert statistics.median(path.read_text().count("\n") for path in PRODUCT) <= FILE_LINES_MEDIAN_MAX


@pytest.mark.parametrize("path", [p for p in PRODUCT if p.name == "__init__.py"], ids=name_of)
def test_every_package_says_who_may_live_there(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), "a package docstring is its admission rule"


def test_mocks_are_rare() -> None:
    sources = [path.read_text() for path in TESTS if path != Path(__file__)]
    tests = sum(len(re.findall(r"^\s*def test_", source, re.MULTILINE)) for source in sources)
    mocks = sum(
        len(re.findall(r"\b(Mock|MagicMock|mocker|patch)\(|monkeypatch\.setattr", source)) for source in sources
    )
    assert mocks <= MOCKS_PER_TEST_MAX * tests


def test_every_lint_exception_carries_its_reason() -> None:
    bare = []
    for path in PYTHON:
        for number, line in enumerate(path.read_text().split("\n"), 1):
            exception = re.search(r"#\s*(noqa(:\s*[A-Z0-9, ]+)?|type:\s*ignore(\[[^\]]*\])?)\s*(.*)$", line)
            if exception and path != Path(__file__) and not exception[4].strip(" -#"):
                bare.append(f"{name_of(path)}:{number}")
    assert not bare, "say why on the same line"
