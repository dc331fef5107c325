"""Other people's hands: a hold that is not ours is lifted or taken over only by a person's word."""

from __future__ import annotations

from tests.chaos.checker.history import OURS, History, Line


def judge(history: History) -> list[str]:
    """Each change of a hold of somebody else's in the scheduler's own record."""
    last: dict[str, Line] = {}
    wrong = []
    for line in history.told("scheduler"):
        node, before = line["node"], last.get(line["node"])
        theirs = before is not None and before["held"] and not before["reason"].startswith(OURS)
        if theirs and not _said(history, line):
            wrong.append(f"the hold {before['reason']!r} on {node} became {line['reason']!r}, and nobody had said so")
        last[node] = line
    return wrong


def _said(history: History, line: Line) -> bool:
    node = line["node"]
    words = [*history.commands("nodes", "uncordon", node=node), *history.commands("nodes", "cordon", node=node)]
    return any(said["mono"] <= line["mono"] for said in words)
