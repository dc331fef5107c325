"""A MkDocs hook: adds files that the documents link to elsewhere in the repository, and every page of a folder.

In the repository a link such as `../../bench/results/x.md` works; the site contains only `docs/`. So each linked file is
added under `repository/`, a folder as a list of its files, and README.md as the first page. Missing files remain dead
links, which `mkdocs build --strict` rejects.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

HOME = "README.md"
SECTIONS = {
    "Tutorial": "tutorial",
    "How to": "how-to",
    "Reference": "reference",
    "Verdicts": "reference/verdicts",
    "Explanation": "explanation",
    "Internals": "internals",
    "Decisions": "decisions",
}
_LINK = re.compile(r"(?<=\]\()(?P<target>[^)#\s:]+)(?P<anchor>#[^)\s]*)?(?=\))")
_MADE: dict[str, str] = {}  # page of the site → file of the repository, for what is not under docs/


def list_relative_links(text: str) -> list[str]:
    """The targets of a document's relative links, without their anchors, as written."""
    return [match["target"] for match in _LINK.finditer(text)]


def place_of(path: str, root: Path) -> str:
    """The location of a repository file or folder on the site; `path` is relative to the repository's root."""
    if path == HOME:
        return "index.md"
    if (root / path).is_dir():
        path = f"{path}/index.md"
    return path.removeprefix("docs/") if path.startswith("docs/") else f"repository/{path}"


def rewrite_links(text: str, source: str, page: str, root: Path) -> str:
    """Rewrite the links of `source`, a repository file shown as `page` of the site."""

    def moved(match: re.Match[str]) -> str:
        path = os.path.normpath(Path(source).parent / match["target"])
        if path.startswith("..") or not (root / path).exists():
            return match[0]
        return os.path.relpath(place_of(path, root), Path(page).parent) + (match["anchor"] or "")

    return _LINK.sub(moved, text)


def unescape_table_pipes(text: str) -> str:
    """Remove the backslash before pipes in code in tables: Markdown requires it in the repository, and MkDocs would show it."""
    rows = re.compile(r"^\|.*\|$", re.MULTILINE)
    spans = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
    return rows.sub(lambda row: spans.sub(lambda span: span[0].replace("\\|", "|"), row[0]), text)


def render_folder_listing(folder: Path) -> str:
    """A page for a folder: its files by their first heading."""
    rows = []
    for file in sorted(folder.glob("*.md")):
        heading = re.search(r"^# (.+)", file.read_text(), re.MULTILINE)
        rows.append(f"- [{heading[1] if heading else file.stem}]({file.name})")
    return "\n".join([f"# {folder.name.capitalize()}", "", *rows, ""])


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Add to each section of the navigation the pages of its folder that it does not name."""
    docs = Path(config.docs_dir)
    for entry in config.nav or []:
        ((section, pages),) = entry.items()
        folder = SECTIONS.get(section)
        if folder is None:
            continue
        named = {page if isinstance(page, str) else next(iter(page.values())) for page in pages}
        here = (f"{folder}/{file.name}" for file in sorted((docs / folder).glob("*.md")))
        pages.extend(page for page in here if page not in named)
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add linked files outside of docs/, and the files that they link to."""
    root = Path(config.docs_dir).parent
    _MADE.clear()
    todo = [HOME, *(f"docs/{file.src_uri}" for file in files.documentation_pages())]
    while todo:
        source = todo.pop()
        page = place_of(source, root)
        if page not in files.src_uris:
            _MADE[page] = source
            files.append(_file(page, root / source, config))
        if source.endswith(".md") or (root / source).is_dir():
            targets = list_relative_links(_text(root / source))
            folder = Path(source) if (root / source).is_dir() else Path(source).parent
            found = {os.path.normpath(folder / target) for target in targets}
            todo += sorted(p for p in found if _is_new(p, root, files))
    return files


def _is_new(path: str, root: Path, files: Files) -> bool:
    return not path.startswith("..") and (root / path).exists() and place_of(path, root) not in files.src_uris


def _text(path: Path) -> str:
    return render_folder_listing(path) if path.is_dir() else path.read_text()


def _file(page: str, path: Path, config: MkDocsConfig) -> File:
    if path.is_dir():
        return File.generated(config, page, content=render_folder_listing(path))
    return File.generated(config, page, abs_src_path=str(path))


def on_page_markdown(markdown: str, page: Page, config: MkDocsConfig, files: Files) -> str:  # noqa: ARG001 - MkDocs' names
    """Convert links between repository files to links between pages."""
    root = Path(config.docs_dir).parent
    source = _MADE.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    if (root / source).is_dir():
        return markdown
    return unescape_table_pipes(rewrite_links(markdown, source, page.file.src_uri, root))


def on_post_build(config: MkDocsConfig, **_: Any) -> None:
    """Reject external resources: the site must work offline."""
    outside = re.compile(r"""<(?:script|link|img)\b[^>]*?\b(?:src|href)=["']?https?://[^"'\s>]+""")
    for file in Path(config.site_dir).rglob("*.html"):
        found = outside.search(file.read_text())
        if found:
            raise ValueError(f"{file}: {found[0]} is fetched from another server; keep it in docs/")
