"""5. A node that we took out comes back only through a passed preflight, and then on probation; or by a person's word.

A fault that comes up while it is given back takes it out again at once: then there is no probation. Nor is there one if an operator
holds the node before that.
"""

from __future__ import annotations

from tests.chaos.checker.history import History, Line


def judge(history: History) -> list[str]:
    """Each end of a hold of ours in the scheduler's own record."""
    wrong: list[str] = []
    since: dict[str, float] = {}
    for line, before, after in history.holds():
        node = line["node"]
        if after and not before:
            since[node] = line["mono"]
        if before and not line["held"]:
            wrong += _returned(history, line, since[node])
    return wrong


def _returned(history: History, line: Line, since: float) -> list[str]:
    node, now = line["node"], line["mono"]
    words = [*history.commands("nodes", "uncordon", node=node), *history.commands("nodes", "retire", node=node)]
    if any(since <= said["until"] and said["mono"] <= now for said in words):
        return []
    deeds = [deed for deed in history.told("deeds") if deed["node"] == node and deed["what"] == "preflight"]
    begun = {deed["pid"]: deed["mono"] for deed in deeds if deed["event"] == "begun"}
    passed = [
        deed
        for deed in deeds
        if deed["event"] == "ended"
        and deed["verdict"] == "pass"
        and since <= begun[deed["pid"]]
        and deed["mono"] <= now
    ]
    if not passed:
        return [f"{node} came back {now - since:.1f} s after it was taken out, and no preflight passed meanwhile"]
    moves = [
        row["body"]["data"]["to"]
        for row in history.rows("audit")
        if row["kind"] == "node_state" and row["node"] == node
    ]
    again = any(held and row["node"] == node and row["mono"] > now for row, _, held in history.holds())
    theirs = "operator-held" in moves and bool(history.commands("nodes", "hold", node=node))
    return [] if "probation" in moves or again or theirs else [f"{node} came back, and not on probation"]
