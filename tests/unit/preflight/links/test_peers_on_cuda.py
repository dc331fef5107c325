"""The branches for GPUs of the tests of peers, on a simulated `cuda` in each process; gloo carries what NCCL would."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from preflight.check_context import Device
from preflight.device_comparison.comparison_table import judge_across_devices
from preflight.results import Outcome, Result

pytestmark = [pytest.mark.torch, pytest.mark.xdist_group("links")]
Run = Callable[..., list[Result]]
DEVICES = tuple(Device(name=f"cuda:{n}", torch_name=f"cuda:{n}", index=n, label="GPU") for n in range(3))


@pytest.mark.parametrize("test", ["peer_links", "collectives"])
def test_healthy_gpus_pass_and_each_rank_uses_its_own(ranks: Run, test: str) -> None:
    """Without the comparison of rates, which other load on these processors would decide."""
    results = ranks(f"{test} on cuda", len(DEVICES))
    assert {result.device for result in results} == {device.name for device in DEVICES}
    assert {result.outcome for result in results} == {Outcome.PASS}


@pytest.mark.parametrize(
    ("test", "fault", "words"),
    [
        ("peer_links", "corrupt", "arrived corrupt"),
        ("collectives", "wrong_sum", "its contribution was wrong"),
        ("collectives", "late_rank", "it is late"),
    ],
)
def test_the_gpu_with_a_fault_is_named(ranks: Run, test: str, fault: str, words: str) -> None:
    results = judge_across_devices(ranks(f"{test} on cuda", len(DEVICES), {1: fault}), DEVICES)
    (culprit,) = [result for result in results if result.device == "cuda:1"]
    assert culprit.outcome is Outcome.FAIL
    assert words in culprit.reason
