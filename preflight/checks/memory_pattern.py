"""Memory: write patterns over nearly all of it, then verify by computing each pattern again on the device.

Two kinds of pattern and the complement of each. *Address in address* finds words that answer to another's address;
a *hash of the address* toggles every bit against its neighbours. All of it is written before any of it is read.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from preflight.checks.context import Context, Device, Note
from preflight.checks.devices import GPU_BLOCK_BYTES, synchronize
from preflight.results import Evidence, Outcome, Result

TEST = "memory_pattern"
WORD_BYTES = 8
ERRORS_LISTED = 8
PATTERNS = ("address", "address inverted", "hash", "hash inverted")
_GOLDEN = -7046029254386353131  # 0x9e3779b97f4a7c15 as a signed word
_MIX_1 = -4658895280553007687  # 0xbf58476d1ce4e5b9
_MIX_2 = -7723592293110705685  # 0x94d049bb133111eb


def pattern(kind: str, first_word: int, words: int, device: str) -> Any:
    """`words` 64-bit words of a pattern, as an int64 tensor of shape [words], beginning at address `first_word`."""
    address = torch.arange(first_word, first_word + words, dtype=torch.int64, device=device)
    if kind.startswith("hash"):
        _splitmix(address)
    return address.bitwise_not_() if kind.endswith("inverted") else address


def run(context: Context) -> Iterator[Result]:
    """One result."""
    if context.device is not None:
        yield check(context.device, context.fault, context.note)


def check(device: Device, fault: str, note: Note) -> Result:
    """Write and verify every pattern on one device."""
    began = time.perf_counter()
    note(f"taking {device.memory_bytes >> 20} MiB of {device.name}")
    blocks = _allocate(device)
    moved = 0
    for kind in PATTERNS:
        note(f"{device.name}: writing pattern {kind}")
        for number, block in enumerate(blocks):
            block.copy_(pattern(kind, number * block.numel(), block.numel(), device.torch_name))
        synchronize(device)
        if fault == "bit_flip" and kind == PATTERNS[-1]:
            blocks[len(blocks) // 2][77] ^= 1 << 21
        note(f"{device.name}: verifying pattern {kind}")
        if found := _errors(blocks, kind, device):
            return Result(test=TEST, outcome=Outcome.FAIL, device=device.name, reason=_sentence(found), evidence=found)
        moved += 2 * sum(block.numel() for block in blocks) * WORD_BYTES
    return _passed(device, moved, time.perf_counter() - began)


def _passed(device: Device, moved: int, seconds: float) -> Result:
    evidence: Evidence = {
        "label": device.label,
        "bytes": device.memory_bytes,
        "patterns": len(PATTERNS),
        "gigabytes_per_s": round(moved / seconds / 1e9, 2),
    }
    return Result(test=TEST, outcome=Outcome.PASS, device=device.name, evidence=evidence)


def _block_bytes(device: Device) -> int:
    return min(GPU_BLOCK_BYTES, device.memory_bytes // 16)


def _allocate(device: Device) -> list[Any]:
    words = _block_bytes(device) // WORD_BYTES
    return [
        torch.empty(words, dtype=torch.int64, device=device.torch_name)
        for _ in range(device.memory_bytes // _block_bytes(device))
    ]


def _splitmix(words: Any) -> None:
    """The finaliser of splitmix64, in place: neighbours differ in about half of their bits."""
    words.mul_(_GOLDEN)
    for shift, factor in ((30, _MIX_1), (27, _MIX_2)):
        words.bitwise_xor_(_shifted(words, shift)).mul_(factor)
    words.bitwise_xor_(_shifted(words, 31))


def _shifted(words: Any, by: int) -> Any:
    """Logical shift right: torch's own keeps the sign."""
    return words.bitwise_right_shift(by).bitwise_and_((1 << (64 - by)) - 1)


def _errors(blocks: list[Any], kind: str, device: Device) -> Evidence:
    """Everything that differs: how many words, and address, expected and actual of the first ones."""
    wrong = 0
    listed: list[str] = []
    bits = 0
    for number, block in enumerate(blocks):
        expected = pattern(kind, number * block.numel(), block.numel(), device.torch_name)
        if torch.equal(block, expected):
            continue
        places = (block != expected).nonzero().flatten()
        wrong += places.numel()
        for place in places[: ERRORS_LISTED - len(listed)].tolist():
            is_, want = int(block[place]) & _ALL, int(expected[place]) & _ALL
            address = (number * block.numel() + place) * WORD_BYTES
            bits |= is_ ^ want
            listed.append(f"{address:#014x}: {want:#018x} expected, {is_:#018x} read")
    return (
        {"pattern": kind, "wrong_words": wrong, "wrong_bits": f"{bits:#018x}", "errors": "; ".join(listed)}
        if wrong
        else {}
    )


_ALL = (1 << 64) - 1


def _sentence(found: Evidence) -> str:
    return (
        f"{found['wrong_words']} wrong words in pattern {found['pattern']}, first {str(found['errors']).split('; ')[0]}"
    )
