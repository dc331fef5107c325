"""2. No action happens twice; none happens without a decision row that names its playbook, evidence and guard results.

A daemon that was killed while its node was tested begins the test anew; a message whose answer was lost goes out again under the
same key. So often, and no more often, may a thing be seen twice.
"""

from __future__ import annotations

from collections import Counter

from tests.chaos.checker.history import History, Line

ORDERS = {"preflight": "run_preflight", "reset_gpu": "reset_gpu"}
BY_HAND = "_by_hand"
BUILT_IN = "built-in"


def judge(history: History) -> list[str]:
    """Deeds against orders, holds against actions, messages against keys, actions against decisions."""
    return [*_decided(history), *_deeds(history), *_holds(history), *_messages(history)]


def _decided(history: History) -> list[str]:
    decisions = {row["id"]: row["body"] for row in history.rows("decisions")}
    asked = set() if history.struck("clock_step") else {row["id"] for row in history.isolating()}
    wrong = []
    for row in history.rows("actions"):
        if row["verb"].endswith(BY_HAND):
            continue  # a person's word stands in place of a decision
        decision = decisions.get(row["body"].get("decision", ""))
        if decision is None:
            wrong.append(f"{row['id']}: no decision")
            continue
        missing = [name for name in ("policy", "rule", "reason") if not decision.get(name)]
        if decision["policy"] != BUILT_IN and not decision.get("findings"):
            missing.append("findings")
        if row["id"] in asked and decision["policy"] != BUILT_IN and not decision.get("guards"):
            missing.append("guards")
        if missing:
            wrong.append(f"{row['id']}: its decision names no {', '.join(missing)}")
    return wrong


def _deeds(history: History) -> list[str]:
    begun = Counter((deed["node"], deed["what"]) for deed in history.told("deeds") if deed["event"] == "begun")
    wrong = []
    for (node, what), times in sorted(begun.items()):
        ordered = sum(row["verb"] == ORDERS[what] and row["node"] == node for row in history.rows("actions"))
        starts = sum(
            line["event"] == "started" and line["daemon"] == f"healthd-{node}" for line in history.told("processes")
        )
        if times > ordered + max(0, starts - 1):
            wrong.append(
                f"{what} on {node}: begun {times} times for {ordered} orders and {starts} starts of its daemon"
            )
    return wrong


def _holds(history: History) -> list[str]:
    placed = Counter(line["node"] for line, before, after in history.holds() if after and not before)
    wrong = []
    for node, times in sorted(placed.items()):
        planned = sum(row["verb"] == "cordon" and row["node"] == node for row in history.rows("actions"))
        if times > planned:
            wrong.append(f"{node}: held by us {times} times, for {planned} actions")
    return wrong


def _messages(history: History) -> list[str]:
    taken: Counter[str] = Counter()
    words: dict[str, Line] = {}
    for line in history.told("received"):
        if line["answered"] < 300:
            taken[line["key"]] += 1
            words[line["key"]] = line["message"]
    ended = sum(line["event"] == "ended" and line["daemon"].startswith("centre") for line in history.told("processes"))
    often = [f"message {key} was taken {times} times" for key, times in sorted(taken.items()) if times > 1 + ended]
    decisions = {row["id"]: row["body"].get("decision", "") for row in history.rows("actions")}
    same = Counter(
        (said["incident"], decisions.get(said.get("id", "")), said["kind"], said["rule"], said["title"], said["text"])
        for said in words.values()
    )  # what is decided anew, may have to be said anew
    return often + [
        f"said {times} times under different keys: {key}" for key, times in same.items() if times > 1 and key[0]
    ]
