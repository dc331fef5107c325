"""Somebody on a node with that node's token, and somebody with none: what they try, and what they are answered."""

from __future__ import annotations

import json
import time
from typing import Any

import requests

from tests.chaos.world.cluster import Cluster

MARK = "said-by-an-intruder"


def intrude(cluster: Cluster) -> None:
    """As another node, as an operator, as an admin, as nobody. Each answer is written down; 0 is none."""
    one, other = cluster.plan.world.nodes[:2]
    words = {"text": MARK, "why": MARK, "mode": "observe"}
    _try(cluster, one, "POST", f"/v1/nodes/{other}/report", false_report(other))
    _try(cluster, one, "GET", f"/v1/nodes/{other}/orders", None)
    _try(cluster, one, "POST", f"/v1/nodes/{one}/uncordon", words)
    _try(cluster, one, "POST", "/v1/mode", words)
    _try(cluster, "ann", "POST", "/v1/tokens", {"role": "admin", "name": MARK})
    for token in ("", "a-guess"):
        _try(cluster, token, "POST", f"/v1/nodes/{other}/report", false_report(other))
        _try(cluster, token, "GET", "/v1/nodes", None)


def false_report(node: str) -> dict[str, Any]:
    """One that would be taken if its sender were `node`: a GPU has fallen off the bus."""
    now = time.time()
    finding = {"id": MARK, "node": node, "check": "xid", "code": "79", "component": {"kind": "gpu", "name": MARK}}
    finding |= {"severity": "fatal", "summary": MARK, "first_seen": now, "last_seen": now, "origin": MARK}
    report = {"version": 1, "node": node, "boot_id": MARK, "agent": MARK, "seq": 1, "sent_at": now, "ttl_s": 30.0}
    return report | {"health": "unhealthy", "changes": [{"seq": 1, "finding": finding}], "active": [finding]}


def _try(cluster: Cluster, who: str, method: str, path: str, body: dict[str, Any] | None) -> None:
    token = cluster.tokens.get(who, who)
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    try:
        answer = requests.request(
            method, cluster.here.url + path, headers=headers, data=None if body is None else json.dumps(body), timeout=5
        )
        code = answer.status_code
    except requests.RequestException:
        code = 0
    cluster.journal.write("intrusions", attempt=f"{method} {path}", token=who or "nobody", answered=code)
