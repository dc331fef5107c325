"""The mark of an injected kernel line: written to the kernel log by a test, and recognised by a node.

A process cannot forge the kernel's facility, so a test fault states what it is and for which node::

    gpu-healthd-inject node=NAME: NVRM: Xid (PCI:0000:3b:00): 79, ...
"""

from __future__ import annotations

import re

import msgspec

from vocabulary.identity import NODE_NAME, require_node_name

MARK = "gpu-healthd-inject"
_MARKED = re.compile(rf"{MARK} node=(?P<node>{NODE_NAME.pattern}): (?P<text>.*)", re.DOTALL)


class InjectedLine(msgspec.Struct, frozen=True):
    """A parsed marked line: the node it is meant for, and the simulated kernel text."""

    node: str
    text: str


def mark_injected_line(node: str, text: str) -> str:
    """Return the line to write so that only `node` takes `text` as an injected fault.

    Raises:
        ValueError: `node` is no node name, or `text` has a line break, which would end the record early.
    """
    if "\n" in text or "\r" in text:
        raise ValueError(f"an injected line cannot hold a line break: {text!r}")
    return f"{MARK} node={require_node_name(node)}: {text}"


def parse_injected_line(line: str) -> InjectedLine | None:
    """Parse a marked line; None if it is not marked. Text before the mark is ignored."""
    match = _MARKED.search(line)
    return InjectedLine(match["node"], match["text"]) if match else None
