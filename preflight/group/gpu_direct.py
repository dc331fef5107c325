"""Whether NCCL used GPUDirect RDMA, from its own log, and which nodes of a group must be put right. Pure."""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping

import msgspec

from vocabulary.text.plurals import format_count

# The same in NCCL 2.18 to 2.28: "(PCI)" came with 2.26, and older releases print bus addresses in brackets. A network has
# any name, with spaces too; a number in parentheses is the rank that sends in this one's place.
_CHANNEL = re.compile(
    r"NCCL INFO Channel \d+(?:/\d+)? : \S+ -> \S+ \[(?P<way>send|receive)\] via NET/(?P<net>\S[^/]*)/\d+(?:\(\d+\))?"
    r"(?P<direct>/GDRDMA(?:\(PCI\))?)?(?:/Shared)?\s*$"
)
_ADAPTER = re.compile(
    r"NET/(?P<net>[^:]+?) : GPU Direct RDMA (?:\([^)]*\) )?(?P<state>Enabled|Disabled) for HCA \d+ '(?P<name>[^']*)'",
    re.IGNORECASE,
)
_TCP = "Socket"
ADVICE = (
    "run modprobe nvidia_peermem there (or use the GPU driver's open kernel modules), switch PCIe ACS off, and compare the "
    "adapters' firmware"
)


class GpuDirect(str, enum.Enum):
    """Whether adapters read and write a node's GPU memory themselves. UNKNOWN too without RDMA."""

    YES = "yes"
    NO = "no"
    UNKNOWN = "unknown"


class GpuDirectUse(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One node's answer; `words` says what NCCL's log has about it."""

    used: GpuDirect = GpuDirect.UNKNOWN
    words: str = ""


def parse_gpu_direct(log: str) -> GpuDirectUse:
    """What a process's NCCL log says. All channels must use it: one that does not is as slow as all.

    Channels that receive decide: sending reads GPU memory, which NCCL avoids on some platforms.
    """
    channels: list[tuple[str, bool]] = []
    adapters: dict[str, bool] = {}
    connected = False
    for line in log.split("\n")[:-1]:  # NCCL may still be writing the last one
        if match := _CHANNEL.search(line):
            connected = True
            if match["net"] != _TCP:
                channels.append((match["way"], match["direct"] is not None))
        elif (match := _ADAPTER.search(line)) and match["net"] != _TCP:
            adapters[match["name"]] = match["state"].lower() == "enabled"
    off = sorted(name for name, enabled in adapters.items() if not enabled)
    disabled = f"NCCL disabled it for {', '.join(off)}" if off else ""
    if not channels:
        known = bool(off) and len(off) == len(adapters) and not connected
        return GpuDirectUse(used=GpuDirect.NO, words=disabled) if known else GpuDirectUse()
    received = [direct for way, direct in channels if way == "receive"] or [direct for _, direct in channels]
    words = f"{sum(received)} of {format_count(len(received), 'channel')}"
    if all(received):
        return GpuDirectUse(used=GpuDirect.YES, words=words)
    return GpuDirectUse(used=GpuDirect.NO, words="; ".join(filter(None, (words, disabled))))


def find_nodes_without(uses: Mapping[str, GpuDirectUse]) -> tuple[str, ...]:
    """The nodes that do not use it where at least as many do: it can be had, so they lack something."""
    without = sorted(node for node, use in uses.items() if use.used is GpuDirect.NO)
    return tuple(without) if len(without) <= _count_users(uses) else ()


def describe_node_without(node: str, uses: Mapping[str, GpuDirectUse]) -> str:
    """What is wrong with one of them, and what to do."""
    others = format_count(_count_users(uses), "other")
    return f"node {node} does not use GPUDirect RDMA ({uses[node].words}), unlike {others}: {ADVICE}"


def describe_rare_use(uses: Mapping[str, GpuDirectUse]) -> str:
    """A remark where most nodes, or all, do without; empty if most use it, or nothing is known."""
    without = [use for use in uses.values() if use.used is GpuDirect.NO]
    if len(without) <= _count_users(uses):
        return ""
    return f"{len(without)} of {len(without) + _count_users(uses)} nodes do not use GPUDirect RDMA ({without[0].words})"


def _count_users(uses: Mapping[str, GpuDirectUse]) -> int:
    return sum(use.used is GpuDirect.YES for use in uses.values())
