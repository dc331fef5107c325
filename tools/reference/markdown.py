"""Markdown from values: whatever a value holds, it stays a value."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

MADE = "<!-- Made by `make reference` from the code; do not edit. -->"


def render_head(title: str, *about: str) -> list[str]:
    """The beginning of a page, as lines."""
    return [f"# {title}", "", MADE, "", *(line for text in about for line in (text, ""))]


def render_table(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A table, as lines; cells are Markdown already."""
    lines = [f"| {' | '.join(columns)} |", "|" + "---|" * len(columns)]
    for row in rows:
        cells = (cell.replace("|", "\\|") for cell in row)
        lines.append(f"| {' | '.join(cells)} |")
    return [*lines, ""]


def render_code(text: str) -> str:
    """As code, also where it holds a backtick; a line break becomes a space."""
    text = " ".join(text.split())
    return f"`` {text} ``" if "`" in text else f"`{text}`" if text else ""


def render_prose(text: str) -> str:
    """Words for people: of Markdown only code in backticks is kept, one line."""
    parts = re.split(r"(``?[^`]+``?)", " ".join(text.split()))
    return "".join(part if part.startswith("`") else re.sub(r"([\\<*_\[\]#])", r"\\\1", part) for part in parts)


def join_lines(lines: Iterable[str]) -> str:
    """Lines to the text of a page, with one line break at its end."""
    return "\n".join(lines).rstrip("\n") + "\n"
