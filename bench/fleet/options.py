"""What a run is to be. The process of the pretended nodes gets the same as the one that measures."""

from __future__ import annotations

import msgspec

INTERVAL_S = 10.0  # healthd's report_interval_s
JOIN_S = 20.0  # from the beginning: connections are made
AFTER_STORM_S = 60.0  # what happens so long after a leader's end is told apart


class Options(msgspec.Struct, frozen=True, kw_only=True):
    """Times are seconds from the beginning of the load; a negative one: never."""

    nodes: int
    seconds: float
    place: str  # a directory of this run
    ports: tuple[int, ...]  # of the replicas, on 127.0.0.1
    interval_s: float = INTERVAL_S  # between two reports of a node
    polls: int  # nodes that also hold a poll for orders open
    faults_per_day: float = 4.0  # of one node
    burst: int = 1000  # nodes with a fault at one moment
    burst_at: float = -1.0
    kill_at: float = -1.0  # kill -9 of the leader
    slow: int = 20  # clients that drip their bodies
    malformed: int = 20  # clients that send what is no report
    certificate: str = ""  # PEM: TLS, and whom to believe
    seed: int = 7


def node_name(number: int) -> str:
    """Of a node that reports as healthd does."""
    return f"gpu-{number:05}"


def slow_name(number: int) -> str:
    """Of a node whose bodies come in drops."""
    return f"slow-{number:03}"


def token_of(node: str) -> str:
    """What it shows."""
    return f"ghd_{node}"


def address_of(number: int) -> str:
    """A node has an address of its own, as in life: limits go by it."""
    return f"127.{1 + number // 64516}.{1 + number // 254 % 254}.{1 + number % 254}"
