"""Nodes with fewer GPUs than their siblings."""

from __future__ import annotations

import pytest

from remediator.model.detector_origin import is_concluded
from remediator.monitoring.gpu_count_comparison import GpuCountComparison, NodeGpus, compare_gpu_counts
from vocabulary.finding import Severity

NOW = 1_700_000_000.0


def compare(*counts: int, product: str = "H100", partitions: tuple[str, ...] = ()) -> GpuCountComparison:
    return compare_gpu_counts([NodeGpus(f"n{i}", product, partitions, c) for i, c in enumerate(counts)], NOW)


def test_a_node_with_seven_beside_four_with_eight_is_named() -> None:
    compared = compare(7, 8, 8, 8, 8)
    (finding,) = compared.findings
    assert (finding.node, finding.kind, finding.severity) == ("n0", "gpu_count/below_siblings", Severity.WARNING)
    assert finding.summary.startswith("7 GPUs, but 4 of 4 other nodes with H100 have 8")
    assert is_concluded(finding)
    assert compared.judged == {"n0", "n1", "n2", "n3", "n4"}


@pytest.mark.parametrize(
    "counts",
    [
        (7, 8, 8, 8),  # three others prove nothing
        (7, 7, 7, 8, 8, 8),  # nobody knows which is right
        (7, 8, 8, 6, 5),  # half of the others are no majority
        (9, 8, 8, 8, 8),  # more is no fault
        (8, 8, 8, 8, 8),
        (),
    ],
)
def test_nothing_is_said_where_nothing_is_proven(counts: tuple[int, ...]) -> None:
    assert compare(*counts).findings == ()


def test_only_nodes_of_one_product_and_the_same_partitions_are_siblings() -> None:
    big = [NodeGpus(f"b{i}", "H100", ("train",), 8) for i in range(6)]
    small = [NodeGpus(f"s{i}", "H100", ("inference",), 4) for i in range(6)]
    other = [NodeGpus("o", "A100", ("train",), 4)]
    assert compare_gpu_counts([*big, *small, *other], NOW).findings == ()
    assert [f.node for f in compare_gpu_counts([*big, *small, NodeGpus("x", "H100", ("train",), 4)], NOW).findings] == [
        "x"
    ]


def test_a_node_is_compared_with_the_others_and_not_with_itself() -> None:
    compared = compare(8, 8, 8, 7, 6)
    assert [f.summary.partition(" other nodes")[0] for f in compared.findings] == [
        "7 GPUs, but 3 of 4",
        "6 GPUs, but 3 of 4",
    ]
    assert compared.judged == {"n3", "n4"}, "of the others of the first three only half have 8"


def test_the_order_in_which_partitions_are_named_means_nothing() -> None:
    several = [("train", "debug"), ("debug", "train")] * 3
    nodes = [NodeGpus(f"n{i}", "H100", named, 8) for i, named in enumerate(several[:5])]
    assert [f.node for f in compare_gpu_counts([*nodes, NodeGpus("x", "H100", several[0], 7)], NOW).findings] == ["x"]
