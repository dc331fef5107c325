"""A history in which all is well, made by hand: one fault, one test, one return, a rank that a spare replaced, a job that went on."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
from typing import Any

from tests.chaos.checker.history import History, Line
from tests.chaos.checker.training_continuity import chain
from tests.chaos.checker.training_losses import undisturbed_losses

PCI = "0000:10:00.0"
BEGAN = 1000.0


def good_history() -> History:
    """A new one each time: tests spoil it."""
    history = History(
        plan={"world": _world(), "strikes": []},
        end={"unsettled": "", "job": "done", "cpu_s": 8.0},
        journal=_journal(),
        store=_store(),
        steps=_steps(),
        saves={"step-000000024": [{"step": 24, "rank": rank, "world": 2, "chain": chain(24)} for rank in (0, 1)]},
    )
    seal(history)
    return history


def seal(history: History) -> None:
    """Make the audit log's chain fit its rows."""
    previous = "0" * 64
    for number, row in enumerate(history.rows("audit"), 1):
        body = json.dumps(row["body"]).encode()
        previous = hashlib.sha256(f"{previous}\n{number}\n{row['epoch']}\n".encode() + body).hexdigest()
        row |= {"seq": number, "bytes": base64.b64encode(body).decode(), "hash": previous}
    history.store["meta"] = [{"key": "audit_head", "value": f"{len(history.rows('audit'))}:{previous}"}]


def line(after_s: float, **what: Any) -> Line:
    """A line of a journal, so long after the beginning."""
    return {"at": BEGAN + after_s, "mono": after_s, **what}


def step(after_s: float, number: int, rank: int, generation: int) -> Line:
    """A line of a step log: rank 0 is on n1 in generation 0, on n3 after that; rank 1 stays on n2."""
    node = "n2" if rank else ("n1", "n3")[generation]
    loss = next(itertools.islice(undisturbed_losses(), number, None)).hex()
    where = {"rank": rank, "world": 2, "attempt": 1, "generation": generation, "node": node, "pid": int(node[1])}
    return line(after_s, event="step", step=number, loss=loss, **where)


def _steps() -> list[Line]:
    return [step(1 + number, number, rank, int(number > 2)) for number in range(5) for rank in (0, 1)]


def _world() -> Line:
    job = {"trainers": 2, "least": 0, "ranks_per_node": 1}
    return {"nodes": ["n1", "n2"], "database": "sqlite", "isolated_max": 1, "per_hour": 2, "gap_s": 1.0, **job}


def _journal() -> dict[str, list[Line]]:
    kernel = {"node": "n1", "author": "kernel", "code": 119, "pci": PCI}
    deed = {"node": "n1", "what": "preflight", "detail": "gate", "pid": 7}
    message = {"incident": "inc-1", "kind": "alert", "rule": "gpu-needs-reset", "title": "a GPU", "text": "stopped"}
    left = [{"rank": rank, "node": f"n{rank + 1}", "code": 92} for rank in (0, 1)]
    return {
        "kernel": [line(5, **kernel), line(5.5, **(kernel | {"code": 901}))],
        "scheduler": [
            line(6, node="n1", held=True, reason="gpu-healthd: inc-1 gpu-needs-reset"),
            line(9, node="n1", held=False, reason=""),
        ],
        "deeds": [line(7, event="begun", **deed), line(8, event="ended", verdict="pass", **deed)],
        "processes": [line(0, daemon="healthd-n1", event="started", pid=3)],
        "received": [line(6.5, key="k1", answered=204, message=message)],
        "intrusions": [line(6, attempt="POST /v1/mode", token="n1", answered=403)],
        "launcher": [
            line(1, event="attempt_started", attempt=1, nodes=["n1", "n2"], spares=["n3"]),
            line(6.2, event="rank_lost", attempt=1, generation=0, rank=0, node="n1", text="it is condemned"),
            line(6.3, event="rank_replaced", attempt=1, generation=1, rank=0, before="n1", after="n3"),
            line(6.4, event="swapped", attempt=1, generation=1, step=3, lost=0),
            line(6.8, event="attempt_ended", attempt=1, text="ordered", ranks=left),
        ],
        "last_step": [line(6.1, step=4)],
        "last": [line(20, nodes=[{"node": node, "health": "healthy", "state": "healthy"} for node in ("n1", "n2")])],
        "ends": [line(21, daemon="healthd-n1", code=0), line(21, daemon="job", code=0)],
    }


def _store() -> dict[str, list[Line]]:
    decision = {"id": "inc-1.d1", "policy": "e7", "rule": "gpu-needs-reset", "reason": "it stands", "findings": ["f1"]}
    return {
        "findings": [
            _row("f1", node="n1", check="xid", code="119", component={"pci": PCI}, severity="fatal"),
            _row("f2", node="n1", check="xid", code="901", component={"pci": PCI}, severity="unclassified"),
        ],
        "decisions": [{"id": "inc-1.d1", "at": BEGAN + 5.9, "body": decision | {"guards": ["passed level: 0 of 1"]}}],
        "actions": [action(verb) for verb in ("cordon", "abort", "run_preflight", "resume")],
        "incidents": [],
        "nodes": [],
        "audit": [audit("healthy", "draining"), audit("testing", "probation")],
    }


def action(verb: str, node: str = "n1", decision: str = "inc-1.d1") -> Line:
    """A row of the table of actions."""
    body = {"decision": decision, "verb": verb, "node": node}
    return {"id": f"{decision}.{verb}.{node}", "planned_at": BEGAN + 6, "body": body, **body}


def audit(was: str, becomes: str) -> Line:
    """A node's move as the log has it."""
    return {"epoch": 1, "kind": "node_state", "node": "n1", "body": {"data": {"from": was, "to": becomes}}}


def _row(name: str, **body: Any) -> Line:
    return {"id": name, "body": {"id": name, **body}}
