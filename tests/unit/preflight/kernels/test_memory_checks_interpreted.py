"""The tests of memory as a GPU runs them, by Triton's kernels: through the interpreter, on a little memory."""

from __future__ import annotations

import pytest

pytest.importorskip("triton")

from preflight.check_context import Context, Device
from preflight.checks import cache_pattern, memory_pattern, memory_retention
from preflight.results import Outcome, Result

pytestmark = pytest.mark.torch


def context(fault: str = "") -> Context:
    device = Device(name="cpu:0", torch_name="cpu", index=0, label="host memory", memory_bytes=(1 << 17) + 24)
    return Context(device=device, devices=(device,) * 1024, level="gate", seconds=0.0, fault=fault, note=lambda _: None)


def pattern(fault: str = "") -> Result:
    (result,) = memory_pattern.check_memory_pattern(context(fault))
    assert result.evidence["way"] == "triton"
    return result


def test_sound_memory_passes_by_the_kernels() -> None:
    result = pattern()
    assert (result.outcome, result.reason, result.remarks) == (Outcome.PASS, "", ())
    assert all("triton" in figure.setting for figure in result.figures)


@pytest.mark.parametrize(
    ("fault", "kind"),
    [("bit_flip", "changed_once"), ("stuck_bit", "stuck_bit"), ("stuck_line", "data_line"), ("alias", "alias")],
)
def test_each_fault_is_found_by_the_kernels(fault: str, kind: str) -> None:
    result = pattern(fault)
    assert (result.outcome, result.evidence["kind"]) == (Outcome.FAIL, kind)
    assert result.locations


def test_charge_that_is_lost_is_found_by_the_kernels() -> None:
    (result,) = memory_retention.check_memory_retention(context("decay"))
    assert (result.evidence["way"], result.evidence["kind"]) == ("triton", "decayed")


def test_a_cache_is_read_many_times_in_one_launch() -> None:
    sound, stuck = (next(iter(cache_pattern.check_cache_pattern(context(fault)))) for fault in ("", "stuck_bit"))
    assert (sound.outcome, sound.evidence["way"]) == (Outcome.PASS, "triton")
    assert (stuck.evidence["kind"], int(stuck.evidence["wrong_reads"]) % cache_pattern.INTERPRETED_REPEATS) == (
        "stuck_bit",
        0,
    )
