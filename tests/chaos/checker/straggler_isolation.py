"""6. Slowness alone never takes a node."""

from __future__ import annotations

import fnmatch

from tests.chaos.checker.history import History

SLOW = ("straggler/*", "throttle/*", "clocks/*", "training/throughput_low", "training/communication_share")


def judge(history: History) -> list[str]:
    """Every decision that cordoned a node rests on something else, too: in these worlds no second signal confirms it."""
    kinds = {row["id"]: f"{row['body']['check']}/{row['body']['code']}" for row in history.rows("findings")}
    decisions = {row["id"]: row["body"] for row in history.rows("decisions")}
    wrong = []
    for row in history.rows("actions"):
        seen = {kinds[one] for one in decisions.get(row["decision"], {}).get("findings", []) if one in kinds}
        slow = {kind for kind in seen if any(fnmatch.fnmatch(kind, pattern) for pattern in SLOW)}
        if row["verb"] == "cordon" and seen and seen == slow:
            wrong.append(f"{row['node']} was cordoned for {', '.join(sorted(seen))} alone: {row['id']}")
    return wrong
