"""The checks that hold no state: identity, recovery action, retired pages."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from healthd.findings.gpu_state import GpuState
from vocabulary.finding import Severity

Gpu = Callable[..., GpuState]


def test_a_gpu_that_differs_from_its_siblings(node: Callable[..., Any], gpu: Gpu) -> None:
    def group(*versions: str) -> list[GpuState]:
        return [gpu(index, {"vbios": version}) for index, version in enumerate(versions)]

    judge = node("gpu_identity")
    assert judge.raised(0, *group("1", "2", "2", "2", "2")) == {"vbios@0"}
    assert judge.raised(0, *group("1", "2", "2", "2")) == set(), "three siblings prove nothing"
    assert judge.raised(0, *group("1", "1", "2", "2", "3", "3")) == set(), "nobody knows which is right"
    assert judge.raised(0, *group("", "2", "2", "2", "2")) == set(), "unknown is not another"
    assert "vbios@0" not in judge.say(0, *group("2", "2", "2", "2", "2"))


def test_ecc_is_expected_on_a_data_center_gpu_that_has_it(node: Callable[..., Any], gpu: Gpu) -> None:
    off: dict[str, Any] = {"ecc_enabled": False}
    judge = node("gpu_identity")
    assert judge.raised(0, gpu(0, off), gpu(1, off, product="NVIDIA RTX A6000"), gpu(2)) == {"ecc_off@0"}
    assert "ecc_off@2" in judge.unknown(0, gpu(2))
    assert "ecc_off@0" not in judge.say(0, gpu(0, {"ecc_enabled": True}))


def test_persistence_mode_is_expected_but_not_of_a_workstation(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("gpu_identity")
    assert judge.raised(0, gpu(0, persistence=False), gpu(1, persistence=True)) == {"persistence_off@0"}
    assert judge.raised(0, gpu(0, product="NVIDIA RTX A6000", persistence=False)) == set()
    assert "persistence_off@0" in judge.unknown(1, gpu(0)), "a virtual machine may not be told"
    assert "nvidia-persistenced" in judge.say(2, gpu(0, persistence=False))["persistence_off@0"].summary
    tolerant = node("gpu_identity", {"gpu_identity": {"persistence_expected": 0}})
    assert tolerant.raised(0, gpu(0, persistence=False)) == set()


@pytest.mark.parametrize(
    ("action", "code", "severity"),
    [
        (1, "reset_gpu", Severity.ERROR),
        (2, "reboot", Severity.ERROR),
        (3, "drain_p2p", Severity.ERROR),
        (4, "drain_and_reset", Severity.ERROR),
        (5, "recover_imex_domain", Severity.ERROR),
        (6, "bus_reset", Severity.ERROR),
        (7, "system_reboot", Severity.ERROR),
        (77, "other", Severity.UNCLASSIFIED),
    ],
)
def test_the_action_that_the_driver_asks_for(
    action: int, code: str, severity: Severity, node: Callable[..., Any], gpu: Gpu
) -> None:
    judge = node("recovery_action")
    (fact,) = judge.say(0, gpu(recovery_action=action)).values()
    assert (fact.code, fact.severity) == (code, severity)
    assert fact.evidence == {"recovery_action": action, "action": code}
    assert f"{code}@0" in judge.unknown(1, gpu()), "not told: what was said stays"
    assert judge.say(2, gpu(recovery_action=0)) == {}


def test_retired_pages_before_ampere(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("retired_pages", {"skus": {"V100": {"retired_pages": {"pages": 10}}}})
    assert judge.raised(0, gpu(retired_pages_corrected=40, retired_pages_uncorrected=20)) == {"many@0"}
    few = {"retired_pages_corrected": 5, "retired_pages_uncorrected": 5, "retirement_pending": False}
    assert judge.say(0, gpu(0, **few)) == {}
    assert judge.raised(0, gpu(0, product="Tesla V100-SXM2-16GB", **few)) == {"many@0"}
    assert judge.raised(0, gpu(retirement_pending=True)) == {"pending@0"}
    assert "many@0" in judge.unknown(0, gpu(retired_pages_corrected=5)), "half of the sum proves nothing"
