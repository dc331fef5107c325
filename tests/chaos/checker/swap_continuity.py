"""A job whose launcher replaces ranks loses none without a reason, and goes on as long as there is somebody to go on with.

A rank may be lost because its process was struck, because an order concerns its node, or because its node's line was cut or bad.
The launcher may give up only where too few spares, or too few nodes, are left that nothing of this has befallen. Ranks that go on
in place answer an order as those that leave do, so that it neither fails nor expires.
"""

from __future__ import annotations

from tests.chaos.checker.history import History, Line

TELLING = {"abort", "checkpoint_then_eject", "checkpoint_then_stop", "revert"}
OF_LINES = ("partition", "bad_line")
NO_SPARE, TOO_FEW = (
    "spare processes are available",
    "cannot go on with fewer ranks",
)  # in the launcher's reason to give up
OF_NODES = (*OF_LINES, "kill", "kill_child", "suspend", "full_disk", "read_only_disk", "corrupt_outbox")
CLOSE_S = 0.5  # of a step to what follows: then the launcher may not know of it yet


def judge(history: History) -> list[str]:
    """The launcher's own record against what the run and the controller did to its ranks."""
    wrong = []
    for line in history.told("launcher"):
        if line["event"] == "rank_lost" and not _struck(history, line["node"], line["at"], line["rank"]):
            wrong.append(f"rank {line['rank']} on {line['node']} was lost, and nothing had befallen it: {line['text']}")
        if line["event"] == "swap_impossible":
            wrong += _given_up(history, line)
    return [*wrong, *_unanswered(history)]


def _unanswered(history: History) -> list[str]:
    """Orders that failed or expired, although neither the node's daemon nor the ranks' pages were struck; to save, nor any rank."""
    excused = history.struck("clock_step") or any(
        strike["detail"]["how"] in ("stop", "garbage") for strike in history.struck("trainer")
    )
    lines = history.struck(*OF_LINES)  # ranks on other nodes wait for each other, too
    killed = any(line["daemon"].startswith("rank") for line in history.told("signals"))
    verbs = {"abort"} if killed or lines else {"abort", "checkpoint_then_eject"}
    return [
        f"the order {row['verb']} on {row['node']} has {row['state']}: {row.get('detail', '')}"
        for row in history.rows("actions")
        if row["verb"] in verbs and row.get("state") in ("failed", "expired") and not excused
        if not any(history.struck(*OF_NODES, target=target) for target in (row["node"], f"healthd-{row['node']}"))
    ]


def _struck(history: History, node: str, at: float, rank: int | None = None) -> bool:
    """Whether something had befallen the job's processes on a node by then. Args: `rank`: also what was to befall that rank."""
    signals = [line for line in history.told("signals") if line["daemon"].startswith("rank") and line["at"] <= at]
    if any(line["node"] == node or line["daemon"] == f"rank-{rank}" for line in signals):
        return True
    lines = [each for each in history.told("disasters") if each["disaster"] in OF_LINES and each["target"] == node]
    if any(each["at"] <= at for each in lines):
        return True
    clock_s = 86400.0 if history.struck("clock_step") else CLOSE_S
    orders = [row for row in history.rows("actions") if row["verb"] in TELLING and row["node"] == node]
    return any(row["planned_at"] <= at + clock_s for row in orders)


def _given_up(history: History, line: Line) -> list[str]:
    world, at, number = history.plan["world"], line["at"], line["attempt"]
    mine = [each for each in history.told("launcher") if each.get("attempt") == number and each["at"] <= at]
    start = next(each for each in mine if each["event"] == "attempt_started")
    used = {each["after"] for each in mine if each["event"] == "rank_replaced"}
    spares = [node for node in start.get("spares", []) if node not in used and not _struck(history, node, at)]
    if TOO_FEW in line["text"]:
        trained = [each for each in history.steps if each["attempt"] == number and each["at"] < at - CLOSE_S]
        nodes = [node for node in (*start["nodes"], *start.get("spares", [])) if not _struck(history, node, at)]
        if trained and len(nodes) >= world["least"]:
            return [f"attempt {number} gave up, although {', '.join(nodes)} were well: {line['text']}"]
    elif NO_SPARE in line["text"]:
        vacant: set[int] = set()
        for each in mine:  # of a condemned node only one rank is reported lost, and all are replaced
            vacant = vacant - {each.get("rank", -1)} if each["event"] == "rank_replaced" else vacant
            vacant = vacant | {each["rank"]} if each["event"] == "rank_lost" else vacant
        if len(vacant) <= len(spares) * world["ranks_per_node"]:
            return [f"attempt {number} found no spare, although some waited on {', '.join(spares)}: {line['text']}"]
    return []
