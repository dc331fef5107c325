"""The documents build into a site: no dead link, no dead anchor, no page that nothing leads to, nothing from another server."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from pathlib import Path

import markdown
import pytest

from tools.pages import place_of, render_folder_listing, rewrite_links, unescape_table_pipes

ROOT = Path(__file__).parents[2]


def test_the_site_builds_without_a_warning(tmp_path: Path) -> None:
    build = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path / "site")],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert build.returncode == 0, build.stderr + "\n'make docs' shows the same"
    assert (tmp_path / "site" / "index.html").exists()
    assert (tmp_path / "site" / "architecture.html").exists()


@pytest.mark.parametrize(
    ("source", "page", "link", "becomes"),
    [
        ("README.md", "index.md", "docs/architecture.md#packages", "architecture.md#packages"),
        ("README.md", "index.md", "docs/decisions", "decisions/index.md"),
        ("docs/architecture.md", "architecture.md", "../README.md", "index.md"),
        ("docs/how-to/slurm.md", "how-to/slurm.md", "../../deploy/README.md", "../repository/deploy/README.md"),
        ("deploy/README.md", "repository/deploy/README.md", "../docs/how-to/slurm.md", "../../how-to/slurm.md"),
        ("README.md", "index.md", "docs/no-such-page.md", "docs/no-such-page.md"),
        ("README.md", "index.md", "../elsewhere.md", "../elsewhere.md"),
        ("README.md", "index.md", "https://example.org/docs", "https://example.org/docs"),
    ],
)
def test_a_link_of_the_repository_is_a_link_of_the_site(source: str, page: str, link: str, becomes: str) -> None:
    assert rewrite_links(f"see [it]({link}).", source, page, ROOT) == f"see [it]({becomes})."


def test_a_folder_is_a_page_that_lists_its_documents(tmp_path: Path) -> None:
    (tmp_path / "b.md").write_text("no heading\n")
    (tmp_path / "a.md").write_text("# What A is\n\ntext\n")
    assert "- [What A is](a.md)\n- [b](b.md)" in render_folder_listing(tmp_path)
    assert place_of("docs/decisions", ROOT) == "decisions/index.md"


def test_a_pipe_in_code_in_a_table_is_shown_as_one() -> None:
    table = "| a | b |\n|---|---|\n| `x\\|y` and ``p`\\|q`` | c \\| d |\n\nelsewhere `x\\|y`\n"
    assert (
        unescape_table_pipes(table) == "| a | b |\n|---|---|\n| `x|y` and ``p`|q`` | c \\| d |\n\nelsewhere `x\\|y`\n"
    )
    html = markdown.markdown(unescape_table_pipes(table), extensions=["tables"])
    assert "<td><code>x|y</code> and <code>p`|q</code></td>" in html
    assert "<td>c | d</td>" in html


MAP = (ROOT / "docs" / "architecture.md").read_text()
PLACES = re.findall(r"`([\w/]+\.py)`: `([\w.]+)`", MAP)


def test_every_file_of_ours_that_a_document_names_exists() -> None:
    tops = {path.name for path in ROOT.iterdir() if path.is_dir()}
    pages = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *(ROOT / "docs").rglob("*.md")]
    missing = [
        f"{page.relative_to(ROOT)}: {name}"
        for page in pages
        if page.parent.name != "decisions"  # they tell of what was
        for name in re.findall(r"`([a-z][a-z0-9_./-]*\.(?:py|yaml))`", page.read_text())
        if name.split("/")[0] in tops and not (ROOT / name).is_file()
    ]
    assert missing == []


@pytest.mark.parametrize(("file", "name"), PLACES, ids=[":".join(place) for place in PLACES])
def test_what_the_map_names_is_in_its_file(file: str, name: str) -> None:
    names: list[ast.stmt] = ast.parse((ROOT / file).read_text()).body
    for part in name.split("."):
        found = [node for node in names if part in defined_by(node)]
        assert found, f"{file} has no {name}"
        names = getattr(found[0], "body", [])


def defined_by(node: ast.stmt) -> set[str]:
    """The names that a statement at the top of a module or a class gives a value."""
    if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [node.target] if isinstance(node, ast.AnnAssign) else []
    return {target.id for target in targets if isinstance(target, ast.Name)}


@pytest.mark.parametrize("program", ["healthd", "preflight", "remediator", "healthctl"])
def test_the_map_names_every_package(program: str) -> None:
    section = re.search(rf"^### {program}\n(.*?)(?=^##)", MAP, re.MULTILINE | re.DOTALL | re.IGNORECASE)
    assert section is not None
    named = set(re.findall(r"`(\w+)/`", section[1]))
    assert named == {path.parent.name for path in (ROOT / program).glob("*/__init__.py")}
