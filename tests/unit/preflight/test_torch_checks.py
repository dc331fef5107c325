from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from preflight.checks import matmul_repeat, memory_pattern
from preflight.checks.context import Device
from preflight.checks.devices import as_bits
from preflight.results import Outcome

pytestmark = pytest.mark.torch

SMALL = Device(name="cpu:0", torch_name="cpu", index=0, label="host memory and processor", memory_bytes=1 << 20)
ALL_BITS = (1 << 64) - 1


def quiet(_: str) -> None:
    pass


def splitmix(index: int) -> int:
    """The published function, in plain integers."""
    z = index * 0x9E3779B97F4A7C15 & ALL_BITS
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 & ALL_BITS
    z = (z ^ z >> 27) * 0x94D049BB133111EB & ALL_BITS
    return z ^ z >> 31


@given(st.integers(0, 1 << 40))
def test_the_hash_pattern_is_the_published_one(first: int) -> None:
    words = [word & ALL_BITS for word in memory_pattern.pattern("hash", first, 3, "cpu").tolist()]
    assert words == [splitmix(first + i) for i in range(3)]
    inverted = [word & ALL_BITS for word in memory_pattern.pattern("hash inverted", first, 3, "cpu").tolist()]
    assert [a ^ b for a, b in zip(words, inverted, strict=True)] == [ALL_BITS] * 3


def test_the_address_pattern_is_the_address() -> None:
    assert memory_pattern.pattern("address", 1 << 33, 2, "cpu").tolist() == [1 << 33, (1 << 33) + 1]


def test_good_memory_passes_and_says_what_was_tested() -> None:
    result = memory_pattern.check(SMALL, "", quiet)
    assert (result.outcome, result.device) == (Outcome.PASS, "cpu:0")
    assert result.evidence["label"] == "host memory and processor"


def test_one_flipped_bit_is_found_and_placed() -> None:
    result = memory_pattern.check(SMALL, "bit_flip", quiet)
    assert result.outcome is Outcome.FAIL
    assert (result.evidence["wrong_words"], result.evidence["wrong_bits"]) == (1, f"{1 << 21:#018x}")
    assert f"{SMALL.memory_bytes // 2 + 8 * 77:#014x}" in result.reason


def test_a_block_that_answers_for_another_is_found() -> None:
    blocks = [memory_pattern.pattern("address", i * 128, 128, "cpu") for i in range(4)]
    blocks[3] = blocks[1]
    found = memory_pattern._errors(blocks, "address", SMALL)
    assert found["wrong_words"] == 128
    assert str(found["errors"]).count("expected") == memory_pattern.ERRORS_LISTED


def test_good_arithmetic_passes() -> None:
    assert matmul_repeat.check(SMALL, "", quiet).outcome is Outcome.PASS


@pytest.mark.parametrize(
    ("fault", "says"),
    [
        ("one_output", "differs from repeat 0: 1 wrong elements"),
        ("all_outputs", "wrong in every repeat: 1 wrong elements"),
        ("nan", "nan computed"),
    ],
)
def test_each_fault_of_arithmetic_is_found(fault: str, says: str) -> None:
    result = matmul_repeat.check(SMALL, fault, quiet)
    assert result.outcome is Outcome.FAIL
    assert says in result.reason


@pytest.mark.parametrize("kind", [torch.bfloat16, torch.float32, torch.float64])
def test_a_digest_depends_on_every_bit_and_its_place_and_bears_nan(kind: torch.dtype) -> None:
    tensor = torch.randn(33, 7, generator=torch.Generator().manual_seed(1)).to(kind)
    before = matmul_repeat.digest(tensor)
    assert matmul_repeat.digest(tensor.clone()) == before
    flipped = tensor.clone()
    as_bits(flipped)[5, 5] ^= 1
    swapped = tensor.clone()
    swapped[0], swapped[1] = tensor[1], tensor[0]
    assert len({before, matmul_repeat.digest(flipped), matmul_repeat.digest(swapped)}) == 3
    flipped[2, 2] = float("nan")
    assert matmul_repeat.digest(flipped) == matmul_repeat.digest(flipped.clone())
