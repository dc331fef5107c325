from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from preflight.check_context import Context, Device
from preflight.checks import digest_evidence, matmul_repeat, special_functions
from preflight.checks.matmul_schedule import (
    SEEDS,
    SEEDS_OF_LEVEL,
    ProductItem,
    choose_product_size,
    list_available_kinds,
    schedule_products,
)
from preflight.device_comparison.device_digests import parse_computed_digests
from preflight.device_comparison.majority_vote import judge_by_majority
from preflight.kernels import arithmetic_faults, golden_digests
from preflight.kernels.digest_platform import describe_platform
from preflight.kernels.matmul_products import KINDS, MatmulWork, ProductKind, RepeatResult, repeat_product
from preflight.results import Outcome, Result

pytestmark = pytest.mark.torch
HOST = tuple(
    Device(name=f"cpu:{i}", torch_name="cpu", index=i, label="host memory and processor", memory_bytes=64 << 20)
    for i in (0, 1)
)
TYPES = ["bf16", "fp16", "fp32", "fp8", "int8", "fp64"]
SCALED = ["mxfp8", "nvfp4"]  # for GPUs only: test_block_scaled_products.py


def quiet(_: str) -> None:
    pass


def context(fault: str = "", device: Device = HOST[0], **changes: object) -> Context:
    made = Context(device=device, devices=HOST, level="gate", seconds=0.0, fault=fault, note=quiet)
    return msgspec.structs.replace(made, **changes)


def products(fault: str = "", device: Device = HOST[0], **changes: object) -> Result:
    (result,) = matmul_repeat.check_matmul_repeat(context(fault, device, **changes))
    return result


def functions(fault: str = "", device: Device = HOST[0], **changes: object) -> Result:
    (result,) = special_functions.check_special_functions(context(fault, device, **changes))
    return result


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """As a device of two has it on a small machine; waiting for each other, threads take seconds where others compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def no_goldens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "goldens.json"
    monkeypatch.setenv(golden_digests.SITE_VARIABLE, str(path))
    return path


def test_good_arithmetic_passes_with_a_rate_and_a_digest_for_each_type() -> None:
    result = products()
    assert (result.outcome, result.reason) == (Outcome.PASS, "")
    assert [(figure.name, figure.unit) for figure in result.figures] == [("product_rate", "TFLOP/s")] * len(TYPES)
    assert [figure.setting for figure in result.figures] == [f"{kind} 256" for kind in TYPES]
    assert all(figure.value > 0 for figure in result.figures)
    told = parse_computed_digests(result)
    assert told is not None
    assert list(told.digests) == [f"{kind} 256 seed {SEEDS[0]}" for kind in TYPES]
    assert result.evidence["lacks"] == "tf32 (CPUs do not support TF32)"
    used = dict(each.rsplit(": ", 1) for each in str(result.evidence[matmul_repeat.ROUNDING]).split(", "))
    assert {f"{kind} 256 checksums" for kind in ("bf16", "fp8", "int8")} <= used.keys()
    assert all(0 <= float(share) < 1 for share in used.values())


FOUND = {
    "one_output": (
        "repeats [1] of 4 differ from repeat 0, first repeat 1 [85, 51]: bits 0x",
        TYPES,
        {"bits": "13: 1", "repeat": 1},
    ),
    "all_outputs": (
        "wrong in every repeat; double precision: 1 wrong, first [85, 51]",
        TYPES,
        {"rows": "85", "columns": "51"},
    ),
    "operand": ("the left operand changed in memory; 1 wrong words", TYPES, {"operand": "left"}),
    "nan": (
        "wrong in every repeat; not a number: 1 wrong, first [85, 51] is nan",
        [*TYPES[:4], "fp64"],
        {"rows": "85"},
    ),
}


@pytest.mark.parametrize("fault", FOUND)
def test_each_fault_of_arithmetic_is_found_in_every_type_and_placed(fault: str) -> None:
    says, types, evidence = FOUND[fault]
    result = products(fault)
    assert result.outcome is Outcome.FAIL
    assert result.reason.startswith(f"bf16 256 seed {SEEDS[0]}: {says}")
    others = result.reason.rpartition("; also ")[2]
    assert others.split(", ") == types[1:]
    assert evidence.items() <= result.evidence.items()
    assert [location.gpu for location in result.locations] == ["cpu:0"]


def test_what_repeats_identically_is_seen_by_comparison_only() -> None:
    good, odd = products(), products("one_device", HOST[1])
    assert (good.outcome, odd.outcome) == (Outcome.PASS, Outcome.PASS)
    both = judge_by_majority([good, odd])
    assert [each.outcome for each in both] == [Outcome.ERROR, Outcome.ERROR]
    assert "cpu:0" in both[1].reason
    third = msgspec.structs.replace(good, device="cpu:2")
    assert [each.outcome for each in judge_by_majority([good, third, odd])] == [
        Outcome.PASS,
        Outcome.PASS,
        Outcome.FAIL,
    ]
    assert [each.outcome for each in judge_by_majority([good, products("", HOST[1])])] == [Outcome.PASS, Outcome.PASS]


def test_one_refused_by_its_own_judges_fails_and_what_all_share_is_nobodys_fault() -> None:
    good, bad = products(), products("all_outputs", HOST[1])
    assert [each.outcome for each in judge_by_majority([good, bad])] == [Outcome.PASS, Outcome.FAIL]
    alike = judge_by_majority([products("all_outputs"), bad])
    assert [each.outcome for each in alike] == [Outcome.ERROR, Outcome.ERROR]
    assert "the library or the rounding limits" in alike[0].reason
    operand = [products("operand", device) for device in HOST]
    assert [each.outcome for each in judge_by_majority(operand)] == [Outcome.FAIL, Outcome.FAIL]
    shared = judge_by_majority([functions("nan"), functions("nan", HOST[1])])
    assert [each.outcome for each in shared] == [Outcome.ERROR, Outcome.ERROR]


def test_a_multiprocessor_that_is_known_is_a_location() -> None:
    item = next(schedule_products(KINDS, HOST[0], "gate"))
    good = products()
    findings = [matmul_repeat.WorkFinding(item, "wrong", {}, sms) for sms in ([17], [3, 17], [])]
    failed = matmul_repeat._build_failed_result(
        good, msgspec.structs.replace(HOST[0], uuid="GPU-1"), findings, by_limit=False
    )
    assert [(location.gpu, location.sm) for location in failed.locations] == [("GPU-1", 3), ("GPU-1", 17)]


def test_a_golden_convicts_one_of_two(no_goldens: Path) -> None:
    told = parse_computed_digests(products())
    assert told is not None
    golden_digests.write_goldens(no_goldens, {told.platform: dict(told.digests)})
    both = judge_by_majority([products(), products("one_device", HOST[1])])
    assert [each.outcome for each in both] == [Outcome.PASS, Outcome.FAIL]
    assert "golden" in both[1].reason


def test_a_broken_file_of_goldens_is_a_remark(no_goldens: Path) -> None:
    no_goldens.write_text("[")
    result = products()
    assert result.outcome is Outcome.PASS
    assert str(no_goldens) in result.remarks[0]


def test_a_slow_device_does_its_work_three_times_and_computes_right() -> None:
    done: list[int] = []
    fault = arithmetic_faults.build_output_fault("slow", lambda output: done.append(output.numel()))
    for repeat in range(4):
        fault(repeat, torch.zeros(8, 8))
    assert len(done) == 4 * (arithmetic_faults.SLOWER - 1)
    result = products("slow")
    assert result.outcome is Outcome.PASS
    assert parse_computed_digests(result) == parse_computed_digests(products())


def test_time_that_is_left_goes_into_further_seeds_and_then_the_first_again() -> None:
    works = [str(item) for item in islice(schedule_products(KINDS[:2], HOST[0], "gate"), 6)]
    seeds = SEEDS[: SEEDS_OF_LEVEL["gate"]]
    assert works[:4] == [f"{kind} 256 seed {seed}" for seed in seeds for kind in ("bf16", "fp16")]
    assert works[4:] == works[:2]
    assert list(schedule_products([], HOST[0], "gate")) == []
    assert len({seed + right for seed in SEEDS for right in (0, 1)}) == 2 * len(SEEDS)


GPU = Device(name="cuda:0", torch_name="cuda:0", index=0, label="GPU", uuid="GPU-1", memory_bytes=70 << 30)


@pytest.mark.parametrize(
    ("capability", "lacks", "fp64"),
    [
        ((12, 0), [], 2048),
        ((10, 0), [], 4096),
        ((9, 0), SCALED, 4096),
        ((8, 9), SCALED, 2048),
        ((8, 0), ["fp8", *SCALED], 4096),
        ((7, 0), ["bf16", "tf32", "fp8", *SCALED, "int8"], 4096),
    ],
)
def test_a_gpu_is_asked_for_what_it_has_in_sizes_that_are_quick(
    capability: tuple[int, int], lacks: list[str], fp64: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda _: capability)
    kinds, missing = list_available_kinds(GPU, "standard")
    assert list(missing) == lacks
    assert [kind for kind in KINDS if kind in kinds] == kinds
    sizes = {kind.name: choose_product_size(kind, GPU) for kind in kinds}
    assert (sizes["fp16"], sizes["fp32"], sizes["fp64"]) == (8192, 4096, fp64)
    small = msgspec.structs.replace(GPU, memory_bytes=3 << 30)
    assert choose_product_size(KINDS[1], small) == 4096
    assert choose_product_size(KINDS[1], msgspec.structs.replace(GPU, memory_bytes=1)) == 1024


def test_what_a_work_gave_before_is_remembered() -> None:
    visits = matmul_repeat.WorkHistory(context(), HOST[0])
    item = next(schedule_products(KINDS, HOST[0], "gate"))
    visits.visit(item)
    visits.digests[str(item)] = "0" * 16
    visits.visit(item)
    (found,) = visits.findings
    assert "0000000000000000 before from the same operands" in found.what


def test_what_is_judged_is_what_was_digested_and_no_further_product(monkeypatch: pytest.MonkeyPatch) -> None:
    def under_load(work: MatmulWork, repeats: int, _: object) -> RepeatResult:
        def wrong(_: int, output: Any) -> None:
            output[3, 5] *= -1

        return repeat_product(work, repeats, wrong)

    monkeypatch.setattr(matmul_repeat, "repeat_product", under_load)
    result = products()
    assert result.outcome is Outcome.FAIL
    assert "wrong in every repeat; double precision: 1 wrong, first [3, 5]" in result.reason


def test_an_output_that_changed_after_it_was_digested_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    def forgetful(work: MatmulWork, repeats: int, fault: Callable[[int, Any], None]) -> RepeatResult:
        seen = repeat_product(work, repeats, fault)
        arithmetic_faults.flip_bit(seen.output, 0)
        return seen

    monkeypatch.setattr(matmul_repeat, "repeat_product", forgetful)
    result = products()
    assert result.outcome is Outcome.FAIL
    assert "of the output when verified, but" in result.reason


def refusing(monkeypatch: pytest.MonkeyPatch, error: Exception, *types: str) -> None:
    def make(kind: ProductKind, *of: Any) -> MatmulWork:
        if kind.name in types:
            raise error
        return MatmulWork(kind, *of)

    monkeypatch.setattr(matmul_repeat, "MatmulWork", make)


def test_a_type_that_the_library_refuses_is_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    good = products()
    refusing(monkeypatch, RuntimeError("CUDA error: CUBLAS_STATUS_NOT_SUPPORTED when calling cublasLtMatmul"), "fp8")
    result = products("", HOST[1])
    assert result.outcome is Outcome.PASS
    assert "the library refuses fp8, which this device should support: CUDA error: CUBLAS" in result.remarks[0]
    assert [each.outcome for each in judge_by_majority([good, result])] == [Outcome.PASS, Outcome.FAIL]


def test_another_signature_of_torchs_private_product_is_lacking_and_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    other = TypeError("_scaled_mm() received an invalid combination of arguments")
    refusing(monkeypatch, other, "fp8")
    result = products()
    assert result.outcome is Outcome.PASS
    assert "fp8 (_scaled_mm() received an invalid combination" in str(result.evidence["lacks"])
    refusing(monkeypatch, other, "bf16")  # which torch computes under a public name
    with pytest.raises(TypeError):
        products()


def test_a_type_that_fails_is_not_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    odd = ProductKind("odd", torch.int8, torch.float64)  # a caller's mistake
    with pytest.raises(RuntimeError, match=r"(?i)expected"):
        matmul_repeat.WorkHistory(context(), HOST[0]).visit(ProductItem(odd, 64, 1))
    refusing(monkeypatch, RuntimeError("cuBLASLt internal error: heuristic returned no algorithm"), "fp8")
    with pytest.raises(RuntimeError, match=f"fp8 256 seed {SEEDS[0]}: cuBLASLt internal error"):
        products()
    refusing(monkeypatch, torch.OutOfMemoryError("CUDA out of memory"), "fp8")
    with pytest.raises(torch.OutOfMemoryError):
        products()


def test_a_part_of_a_card_does_not_vote() -> None:
    evidence, _ = digest_evidence.build_digest_evidence(msgspec.structs.replace(HOST[0], uuid="MIG-1"), {"bf16": "aa"})
    assert evidence["votes"] is False
    assert evidence["platform"] == describe_platform("cpu")


@pytest.mark.parametrize("fault", ["one_output", "all_outputs", "nan", "operand"])
def test_each_fault_of_special_functions_is_found(fault: str) -> None:
    result = functions(fault)
    assert result.outcome is Outcome.FAIL
    assert result.reason.startswith("exp 256 seed")
    assert result.reason.endswith("; also log, sin, cos, tanh, rsqrt, reciprocal, erf")
    assert result.evidence["wrong_works"] == 16, "each of near and of wide numbers"
    assert result.locations[0].gpu == "cpu:0"
    assert ("the input numbers changed in memory; 1 wrong words, first at byte" in result.reason) == (
        fault == "operand"
    )


def test_numbers_that_changed_are_no_fault_of_the_library() -> None:
    both = judge_by_majority([functions("operand", device) for device in HOST])
    assert [each.outcome for each in both] == [Outcome.FAIL, Outcome.FAIL]


def test_special_functions_are_compared_like_products() -> None:
    good, odd = functions(), functions("one_device", HOST[1])
    assert good.outcome is Outcome.PASS
    third = msgspec.structs.replace(good, device="cpu:2")
    judged = judge_by_majority([good, odd, third])
    assert [each.outcome for each in judged] == [Outcome.PASS, Outcome.FAIL, Outcome.PASS]
    assert judged[1].evidence["wrong_works"] == 16
