from __future__ import annotations

from collections.abc import Callable
from typing import Any

from healthd.findings.gpu_state import GpuState
from vocabulary.finding import Severity

Gpu = Callable[..., GpuState]


def test_lost_data_is_said_until_the_gpu_is_reset(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("ecc")
    assert judge.raised(0, gpu(0, ecc_uncorrected=1), gpu(1, ecc_uncorrected=0)) == {"uncorrected@0"}
    assert "uncorrected@0" in judge.unknown(1, gpu())
    assert "uncorrected@0" not in judge.say(2, gpu(ecc_uncorrected=0))


def test_worn_out_sram_takes_no_new_work_and_a_lifetime_of_errors_is_worth_a_look(
    node: Callable[..., Any], gpu: Gpu
) -> None:
    said = node("ecc").say(0, gpu(0, sram_threshold_exceeded=True), gpu(1, ecc_uncorrected_aggregate=32))
    assert said["sram_threshold@0"].severity is Severity.ERROR
    assert said["uncorrected_lifetime@1"].severity is Severity.WARNING
    assert "uncorrected_lifetime@0" in node("ecc").unknown(0, gpu())


def test_a_storm_of_corrected_errors_counts_and_their_sum_does_not(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("ecc")
    assert judge.raised(0, gpu(ecc_corrected=5_000_000)) == set()
    assert judge.raised(10, gpu(ecc_corrected=5_000_999)) == set()
    assert judge.raised(20, gpu(ecc_corrected=5_001_000)) == {"corrected@0"}
    assert "corrected@0" in judge.unknown(21, gpu()), "not read in this sweep"
    assert judge.raised(4000, gpu(ecc_corrected=5_001_000)) == set()
    assert "corrected@0" in judge.unknown(7500, gpu(ecc_corrected=5_001_000))
    assert "corrected@0" not in judge.say(15_000, gpu(ecc_corrected=5_001_000))


def test_a_model_has_its_own_rate(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("ecc", {"skus": {"B200": {"ecc": {"corrected_in_window": 50}}}})
    for at, count in ((0, 0), (10, 60)):
        raised = judge.raised(at, gpu(0, ecc_corrected=count), gpu(1, product="NVIDIA GB200", ecc_corrected=count))
    assert raised == {"corrected@1"}
