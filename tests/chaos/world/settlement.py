"""When a run is over: everybody is up, everything is told, and for some seconds nothing new has happened."""

from __future__ import annotations

import http.client
import re
import socket
import time
from typing import Any

from tests.chaos.world.balancer import is_up
from tests.chaos.world.cluster import Cluster
from tests.chaos.world.environment import CENTRE_PORT

STILL_S = 2.5  # without an event, and everybody well
DEADLINE_S = 120.0  # a busy machine; what is stuck stays stuck
STOPS, WITHHELD = ("observe", "recommend"), "starts no further attempt"
WAITING = re.compile(rb"^healthd_outbox_waiting_changes (\S+)$", re.MULTILINE)


def settle(cluster: Cluster, deadline_s: float = DEADLINE_S) -> str:
    """Wait; empty when all has settled, else what has not."""
    ends = time.monotonic() + deadline_s
    before: object = None
    still_since = time.monotonic()
    while True:
        why, now = unsettled(cluster)
        if now != before or why:
            before, still_since = now, time.monotonic()
        if not why and time.monotonic() - still_since > STILL_S:
            return ""
        if time.monotonic() > ends:
            return why or "events go on and on"
        time.sleep(0.5)


def unsettled(cluster: Cluster) -> tuple[str, object]:
    """Why it has not settled, empty if it may have, and what must not change for that to be so."""
    down = [name for name, daemon in cluster.daemons.items() if daemon.pid is None and name != "job"]
    if down:
        return f"{', '.join(down)} is not running", None
    starting = [number for number in range(cluster.plan.world.centres) if not is_up(CENTRE_PORT + number)]
    if starting:
        return f"centre-{starting[0]} has not come up", None
    audit = cluster.get("/v1/audit?limit=1")
    if audit is None:
        return "no centre answers", None
    late = [node["node"] for node in cluster.nodes() if time.time() - (node.get("last_seen") or 0.0) > 5]
    if late:
        return f"{', '.join(late)} has not reported", None
    full = [node for node in cluster.plan.world.nodes if _waiting(cluster, node) != 0.0]
    if full:
        return f"{', '.join(full)} has changes to report", None
    stopped = (cluster.get("/v1/status") or {}).get("mode") in STOPS
    actions = (cluster.get("/v1/actions") or {"actions": []})["actions"]
    busy = [action for action in actions if not _may_wait(action, stopped=stopped)]
    words = ", ".join(f"{action['verb']} on {action['node']} ({action.get('detail', '')})" for action in busy)
    return words, audit["head"]


def _may_wait(action: dict[str, Any], *, stopped: bool) -> bool:
    """A person's turn; or one has said that nothing is to begin, and it has not."""
    return bool(action.get("waits_for_person")) or (stopped and action.get("on_stop") == WITHHELD)


def _waiting(cluster: Cluster, node: str) -> float | None:
    connection = http.client.HTTPConnection("localhost", timeout=5)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(5)
        connection.sock.connect(str(cluster.place / "nodes" / node / "run" / "healthd.sock"))
        connection.request("GET", "/metrics")
        found = WAITING.search(connection.getresponse().read())
        return float(found[1]) if found else None
    except (OSError, http.client.HTTPException):
        return None
    finally:
        connection.close()
