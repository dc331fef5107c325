"""8. A dead remediator stops no training; a dead healthd stops no training. And what is saved is what was trained.

A rank leaves before its time only because an order told its job so, or because the run itself ended it.
"""

from __future__ import annotations

import hashlib

from tests.chaos.checker.history import History, Line

TELLING = {"abort", "checkpoint_then_eject", "checkpoint_then_stop", "revert"}
LEFT = {90, 91, 92, 93}


def judge(history: History) -> list[str]:
    """How attempts ended, what was saved, and that the job came to its end."""
    return [*_ended(history), *_attempts(history), *_saves(history)]


def _ended(history: History) -> list[str]:
    if history.end["job"] == "done":
        return []
    if history.end["job"] == "stuck":
        return ["the job neither ended nor waits for nodes"]
    last = history.told("last")[-1]["nodes"]
    good = [
        node["node"] for node in last if node["health"] in ("healthy", "degraded") and node["state"] != "quarantined"
    ]
    good = [node for node in good if not _held_last(history, node)]
    wanted = history.plan["world"]["least"] or history.plan["world"]["trainers"]
    return [f"the job waits for {wanted} nodes, although {', '.join(good)} are well"] if len(good) >= wanted else []


def _held_last(history: History, node: str) -> bool:
    held = [line["held"] for line in history.told("scheduler") if line["node"] == node]
    return bool(held) and held[-1]


def _attempts(history: History) -> list[str]:
    orders = [row for row in history.rows("actions") if row["verb"] in TELLING]
    ours = [line for line in history.told("signals") if line["daemon"] == "job" or line["daemon"].startswith("rank")]
    stopping = [line["at"] for line in history.told("launcher") if line["event"] == "stopping"]
    wrong = []
    for line in history.told("launcher"):
        if line["event"] != "attempt_ended" or any(at <= line["at"] for at in stopping):
            continue
        codes = {rank["code"] for rank in line["ranks"]} - {0}
        if not codes:
            continue
        ordered = any(row["planned_at"] <= line["at"] + _clock(history) for row in orders)
        if codes <= LEFT and not ordered and not ours:
            wrong.append(f"attempt {line['attempt']} left with {sorted(codes)}, and nobody had ordered it")
        if not codes <= LEFT and not ours and not ordered:
            wrong.append(f"attempt {line['attempt']} ended with {sorted(codes)}: {line['text']}")
    return wrong


def _clock(history: History) -> float:
    """By how much the centre's clock may have been wrong."""
    return 86400.0 if history.struck("clock_step") else 0.5


def _saves(history: History) -> list[str]:
    wrong = []
    for name, ranks in sorted(history.saves.items()):
        step = int(name.partition("-")[2])
        if len(ranks) != ranks[0]["world"]:
            wrong.append(f"{name} holds {len(ranks)} of {ranks[0]['world']} ranks")
        wrong += [
            _chain_wrong(name, rank, step) for rank in ranks if rank["chain"] != chain(step) or rank["step"] != step
        ]
    return wrong


def _chain_wrong(name: str, rank: Line, step: int) -> str:
    return f"{name}: rank {rank['rank']} saved step {rank['step']} and not exactly the steps 0 to {step}"


def chain(step: int) -> str:
    """What a rank holds that has trained the steps 0 to `step`, each once and in their order."""
    held = ""
    for number in range(step + 1):
        held = hashlib.sha256(f"{held}{number}".encode()).hexdigest()
    return held
