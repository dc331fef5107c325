"""The file that says which node stands in which rack."""

from __future__ import annotations

from remediator.fleet.topology_file import TopologyError, load_topology
from tests.fuzz.target import Target, scratch
from tests.fuzz.targets.healthd_config import TRAPS

FILE = scratch() / "topology.yaml"


def judge(data: bytes) -> None:
    """Places or its own error."""
    FILE.write_bytes(data)
    try:
        topology = load_topology(FILE)
    except TopologyError:
        return
    topology.of(["n1"])


TARGET = Target(
    judge,
    (
        b"nodes:\n  n[001-032]: {rack: r1, switch: leaf1, partitions: [train]}\n  '*': {image: ubuntu}\n",
        b"nodes: {'n[9-1]': {}}\n",
        b"nodes: {'n[1-" + b"9" * 5000 + b"]': {}}\n",
        *TRAPS,
    ),
    bytes_max=500,
)
