"""The gate: queries this node's healthd, through its UNIX socket, whether the node may take ranks.

A verdict older than a few seconds is stale.

Runs on every candidate node before an attempt (`python -m healthd.launcher.gate SOCKET`), so it imports next to
nothing.
"""

from __future__ import annotations

import json
import os
import socket
import sys
from collections.abc import Callable, Sequence
from typing import Any

from healthd.launcher.decisions.relaunch_policy import Fitness, NodeVerdict
from vocabulary.daemon_socket import SOCKET, STALE_S, NoResponseError, call_daemon, verdict_age_s

TIMEOUT_SECONDS = 3.0


def query_node_health(template: str, node: str, timeout_seconds: float = TIMEOUT_SECONDS) -> NodeVerdict:
    """Return the verdict of a node's own daemon; any failure is 'unknown', with the reason.

    Args:
        template: path of healthd's socket; `{node}` stands for the node's name.
        node: its name.
        timeout_seconds: how long to wait for an answer.
    """
    path = template.replace("{node}", node)
    try:
        status, answer = call_daemon(path, "/v1/verdict", timeout_seconds)
        if status == 200:
            return parse_node_verdict(node, answer)
        why = f"{path}: HTTP status {status}"
    except NoResponseError as error:
        why = str(error)
    except ValueError as error:
        why = f"{path}: {error}"
    return NodeVerdict(node, Fitness.UNKNOWN, f"no answer from healthd at {why}")


def parse_node_verdict(node: str, answer: bytes) -> NodeVerdict:
    """Parse the answer of `GET /v1/verdict`: condemned or unhealthy is unfit, only a fresh healthy is fit.

    Raises:
        ValueError: it is not a verdict.
    """
    document: Any = json.loads(answer)
    if not isinstance(document, dict) or document.get("fit") not in (True, False):
        raise ValueError("the answer is not a verdict: 'fit' is missing")
    reasons = document.get("reasons")
    reason = "; ".join(map(str, reasons)) if isinstance(reasons, list) else ""
    if document.get("condemned") or document.get("health") == "unhealthy":
        return NodeVerdict(node, Fitness.UNFIT, reason or "condemned")
    age_s = verdict_age_s(document)
    if not age_s <= STALE_S:
        why = f"the verdict is {age_s:.0f} s old; healthd is stuck or was stopped: restart it"
        return NodeVerdict(node, Fitness.UNKNOWN, why)
    if document["fit"]:
        return NodeVerdict(node, Fitness.FIT, reason)
    return NodeVerdict(node, Fitness.UNKNOWN, reason or f"health is {document.get('health')}")


def answer_health_question(node: str, arguments: Sequence[str], _stopped: Callable[[], bool]) -> dict[str, Any]:
    """Return the verdict as a node sends it; `arguments` may hold the socket's path."""
    return query_node_health(arguments[0] if arguments else SOCKET, node)._asdict()


def main() -> None:
    """Print this node's verdict as one line of JSON."""
    node = os.environ.get("HEALTHD_NODE") or os.environ.get("SLURMD_NODENAME") or socket.gethostname()
    sys.stdout.write(json.dumps(answer_health_question(node, sys.argv[1:], lambda: False)) + "\n")


if __name__ == "__main__":
    main()
