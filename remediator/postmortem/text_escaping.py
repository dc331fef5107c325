"""Escapes untrusted text for Markdown, HTML and terminals. Pure.

The author of a log line or a job name decides its content, but not how it is displayed.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

_SPECIAL = re.compile(r"[\\`*{}\[\]|#~!$]|(?<![^\W_])_|_(?![^\W_])")  # an underscore within a word needs no escape
_BEGINS_LIST = re.compile(r"(\d{1,9})?[-+.)](?=\s|$)")
_ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}
_BACKTICKS = re.compile(r"`+")
FENCE_MIN = 3


class EscapedMarkdown(str):
    """Markdown built here: escaped already."""

    __slots__ = ()


def escape_control_characters(text: str) -> str:
    r"""Escape characters that could mislead a terminal or a reader.

    >>> escape_control_characters("a\nb\x1b[2J")
    'a\\nb\\x1b[2J'
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def escape_markdown(text: str) -> EscapedMarkdown:
    r"""Escape text to one line of Markdown that shows it literally: no markup, table cell, link or HTML.

    >>> escape_markdown("a|b <script> `x` http://c")
    'a\\|b &lt;script&gt; \\`x\\` http:&#47;/c'
    """
    line = escape_control_characters(text).strip()
    escaped = _SPECIAL.sub(lambda found: f"\\{found[0]}", line)
    for sign, entity in _ENTITIES.items():
        escaped = escaped.replace(sign, entity)
    escaped = escaped.replace("://", ":&#47;/")
    escaped = re.sub(r"www\.", lambda found: f"{found[0][:-1]}\\.", escaped, flags=re.IGNORECASE)
    begins = _BEGINS_LIST.match(escaped)
    if begins is not None:
        escaped = f"{begins[1] or ''}\\{escaped[begins.end() - 1 :]}"
    return EscapedMarkdown(escaped)


def fence_code_block(lines: Iterable[str]) -> EscapedMarkdown:
    """Format `lines` as a code block whose fence is longer than any run of backticks in them."""
    cleaned = [escape_control_characters(line) for line in lines]
    longest = max((len(run) for line in cleaned for run in _BACKTICKS.findall(line)), default=0)
    fence = "`" * max(FENCE_MIN, longest + 1)
    return EscapedMarkdown("\n".join([f"{fence}text", *cleaned, fence]))
