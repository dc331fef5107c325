"""Finds nodes with fewer GPUs than most of the same product and partitions: a freshly booted node cannot notice it.

Pure.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from remediator.model.detector_origin import CENTRE
from remediator.monitoring.detector_findings import build_detector_finding
from vocabulary.finding import Evidence, Finding, Severity
from vocabulary.identity import Component, ComponentKind

ORIGIN = f"{CENTRE}gpu_count"
CHECK, CODE = "gpu_count", "below_siblings"
NO_LONGER = "the node has as many GPUs as most nodes with its product"
SIBLINGS_MIN = 4  # with fewer siblings, a difference proves nothing
_HOST = Component(ComponentKind.HOST)


class NodeGpus(NamedTuple):
    """What a reporting node says of its GPUs."""

    node: str
    product: str
    partitions: tuple[str, ...]
    gpus: int


class GpuCountComparison(NamedTuple):
    """`judged`: the nodes that could be compared; the others have too few siblings, or siblings that differ too much."""

    findings: tuple[Finding, ...]
    judged: frozenset[str]


def compare_gpu_counts(nodes: Iterable[NodeGpus], now: float) -> GpuCountComparison:
    """Compare each node with its siblings: at least `SIBLINGS_MIN`, more than half of which have the same count."""
    groups: Mapping[tuple[str, tuple[str, ...]], list[NodeGpus]] = defaultdict(list)
    for node in nodes:
        groups[node.product, tuple(sorted(node.partitions))].append(node)
    findings: list[Finding] = []
    judged: set[str] = set()
    for members in groups.values():
        counts = Counter(member.gpus for member in members)
        usual, having = counts.most_common(1)[0]
        for member in members:
            others = len(members) - 1
            alike = having - (member.gpus == usual)
            if others < SIBLINGS_MIN or 2 * alike <= others:
                continue
            judged.add(member.node)
            if member.gpus < usual:
                findings.append(_missing_gpu_finding(member, usual, alike, others, now))
    return GpuCountComparison(tuple(findings), frozenset(judged))


def _missing_gpu_finding(node: NodeGpus, usual: int, alike: int, others: int, now: float) -> Finding:
    words = (
        f"{node.gpus} GPUs, but {alike} of {others} other nodes with {node.product} have {usual}: find the missing GPUs,"
        " or set gpus.expected in healthd's configuration"
    )
    evidence: Evidence = {"gpus": node.gpus, "siblings_have": usual, "siblings": others, "product": node.product[:100]}
    return build_detector_finding((node.node, _HOST), (CHECK, CODE), ORIGIN, Severity.WARNING, words, now, evidence)
