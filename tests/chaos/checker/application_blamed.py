"""4. An error of programs, however many nodes show it, takes no node."""

from __future__ import annotations

from tests.chaos.checker.history import History

OF_PROGRAMS = {"xid/13", "xid/31", "xid/43", "xid/45"}


def judge(history: History) -> list[str]:
    """Every decision that cordoned a node rests on something else, too."""
    kinds = {row["id"]: f"{row['body']['check']}/{row['body']['code']}" for row in history.rows("findings")}
    decisions = {row["id"]: row["body"] for row in history.rows("decisions")}
    wrong = []
    for row in history.rows("actions"):
        decision = decisions.get(row["decision"], {})
        seen = {kinds[finding] for finding in decision.get("findings", []) if finding in kinds}
        if row["verb"] == "cordon" and seen and seen <= OF_PROGRAMS:
            wrong.append(f"{row['node']} was cordoned for {', '.join(sorted(seen))} alone: {row['id']}")
    return wrong
