"""A bridge with the centre on it, and a namespace and a cable for each node. Everything goes with the run's own namespace."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path

CENTRE = "10.77.0.1"
BRIDGE = "bridge0"
EPHEMERAL = "32768:65535"


class Network:
    """`ip`, `tc` and `iptables` do all of it."""

    def __init__(self, nodes: Sequence[str]) -> None:
        self._nodes = tuple(nodes)

    def build(self) -> None:
        """Lay the cables; needs root in a network namespace of one's own."""
        _do("ip link set lo up", f"ip link add {BRIDGE} type bridge", f"ip addr add {CENTRE}/24 dev {BRIDGE}")
        _do(f"ip link set {BRIDGE} up")
        # A launcher that listens on the loopback alone is reached from the nodes, too, so that a cable cuts ranks off from it.
        Path(f"/proc/sys/net/ipv4/conf/{BRIDGE}/route_localnet").write_text("1")
        _do(f"iptables -t nat -A PREROUTING -d {CENTRE} -p tcp --dport {EPHEMERAL} -j DNAT --to-destination 127.0.0.1")
        for number, node in enumerate(self._nodes, 10):
            _do(
                f"ip netns add {node}",
                f"ip link add port-{node} type veth peer name eth0 netns {node}",
                f"ip link set port-{node} master {BRIDGE} up",
                f"ip -n {node} addr add 10.77.0.{number}/24 dev eth0",
                f"ip -n {node} link set eth0 up",
                f"ip -n {node} link set lo up",
            )

    def inside(self, node: str) -> list[str]:
        """What a command begins with to run on a node."""
        return ["nsenter", f"--net=/run/netns/{node}", "--"]

    def cable(self, node: str, *, plugged: bool) -> None:
        """Pull a node's cable, or put it back."""
        _do(f"ip link set port-{node} {'up' if plugged else 'down'}")

    def spoil(self, node: str, loss: float, kbit: float) -> None:
        """Lose a part of what arrives at a node, and let what leaves for it queue up."""
        _do(f"tc qdisc replace dev port-{node} root tbf rate {kbit:g}kbit burst 4k latency 800ms")
        _do(f"ip netns exec {node} iptables -A INPUT -m statistic --mode random --probability {loss:g} -j DROP")

    def mend(self, node: str) -> None:
        """A good line again."""
        _do(f"tc qdisc del dev port-{node} root", f"ip netns exec {node} iptables -F INPUT")


def _do(*commands: str) -> None:
    for command in commands:
        done = subprocess.run(command.split(), capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"{command}: {done.stderr.strip()}")
