"""The documents build into a site: no dead link, no dead anchor, no page that nothing leads to, nothing from another server."""

from __future__ import annotations

import os
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
        ("README.md", "index.md", "docs/architecture.md#houses", "architecture.md#houses"),
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
