from __future__ import annotations

from collections.abc import Callable
from typing import Any

from healthd.findings.facts import Raise
from healthd.findings.gpu_state import GpuState
from vocabulary.finding import Severity

Gpu = Callable[..., GpuState]


def test_pending_failed_and_unknown(node: Callable[..., Any], gpu: Gpu) -> None:
    worn = gpu(0, remap_pending=True, remap_failed=False, rows_remapped_corrected=2)
    said = node("row_remap").say(0, worn, gpu(1, remap_failed=True))
    pending, failure = said["pending@0"], said["failure@1"]
    assert isinstance(pending, Raise)
    assert isinstance(failure, Raise)
    assert (pending.severity, failure.severity) == (Severity.ERROR, Severity.FATAL)
    assert pending.evidence == {"rows_remapped_corrected": 2}
    assert "failure@0" not in said
    assert not isinstance(said["pending@1"], Raise)


def test_banks_without_spare_rows_are_seen_before_a_remap_fails(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("row_remap")
    assert judge.raised(0, gpu(remap_histogram=(640, 0, 0, 0, 0))) == set()
    assert judge.raised(1, gpu(remap_histogram=(638, 1, 1, 0, 0))) == set()
    assert judge.raised(2, gpu(remap_histogram=(639, 0, 0, 1, 0))) == {"spares@0"}
    assert judge.raised(3, gpu(remap_histogram=(639, 0, 0, 0, 1))) == {"spares@0"}
    assert "spares@0" in judge.unknown(4, gpu()), "not known to this GPU: what was said stays"


def test_a_model_has_its_own_number_of_rows(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("row_remap", {"skus": {"A100": {"row_remap": {"rows_uncorrected": 10}}}})
    old, new = (
        gpu(0, product="NVIDIA A100-SXM4-80GB", rows_remapped_uncorrected=10),
        gpu(1, rows_remapped_uncorrected=10),
    )
    assert judge.raised(0, old, new) == {"many@0"}
