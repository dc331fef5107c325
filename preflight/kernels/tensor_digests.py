"""64-bit digests of tensors, made on the device: of all bits and where they are, so that NaN equals NaN of the same bits.

A digest is kept for each block of the output, not one for all: what differs has a place at once, and the words of
a block that differs are set aside in the same pass, before the next product overwrites them. The kernel of `digest_kernel`
makes them where there is Triton, torch makes the same ones elsewhere.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
from typing import Any, NamedTuple

import torch

from preflight.kernels.memory_errors import signed
from preflight.kernels.memory_patterns import ALL_BITS, GOLDEN, MIX_1, MIX_2

BLOCK_WORDS = 2048
KEPT = 16  # blocks set aside


class DifferingBlock(NamedTuple):
    """One block that differed from the reference, and its words (unsigned, [block])."""

    repeat: int
    block: int
    words: list[int]


def view_as_int64(tensor: Any) -> Any:
    """The same memory as int64[words]; ValueError if that cannot be."""
    if not tensor.is_contiguous() or tensor.numel() * tensor.element_size() % 8:
        raise ValueError(f"a digest needs whole 64-bit words side by side, not {tuple(tensor.shape)} of {tensor.dtype}")
    return tensor.view(-1).view(torch.int64)


def compute_block_digests(words: Any, block_words: int = BLOCK_WORDS) -> Any:
    """One digest for each block of int64[words], as int64[blocks]; behind the end zeros are digested."""
    blocks = -(-words.numel() // block_words)
    mixed = torch.arange(1, blocks * block_words + 1, dtype=torch.int64, device=words.device).mul_(signed(GOLDEN))
    mixed[: words.numel()] += words
    mixed.mul_(signed(MIX_1))
    mixed.bitwise_xor_(_shift_right_logical(mixed, 32)).mul_(signed(MIX_2))
    mixed.bitwise_xor_(_shift_right_logical(mixed, 29))
    return mixed.view(blocks, block_words).sum(1)


def _shift_right_logical(words: Any, by: int) -> Any:
    """Logical shift right: torch's own keeps the sign."""
    return words.bitwise_right_shift(by).bitwise_and_((1 << (64 - by)) - 1)


def is_interpreted() -> bool:
    """Whether Triton runs kernels on the processor, through numpy."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def asks_multiprocessor(tensor: Any) -> bool:
    """Whether a kernel on this tensor can ask for its multiprocessor: on a GPU, and not in Triton's interpreter."""
    return bool(tensor.is_cuda) and not is_interpreted()


@functools.cache
def explain_missing_triton(device: str) -> str:
    """Why torch has to make the digests on this device; empty if Triton's kernel does.

    The kernel is tried once: a Triton without a compiler, or for other GPUs, is found out here. Raises RuntimeError if
    it digests other bits than torch does: then one of the two was computed wrongly.
    """
    if importlib.util.find_spec("triton") is None:
        return "Triton is not installed"
    if not device.startswith("cuda") and not is_interpreted():
        return "Triton does not compile for CPUs"
    sample = torch.arange(BLOCK_WORDS + 5, dtype=torch.int64, device=device).mul_(signed(GOLDEN))
    made = OutputDigests(sample, 1, by_triton=True)
    try:
        made.add(0, sample)
    except Exception as error:  # noqa: BLE001 - Triton, the compiler and the driver each have classes of their own
        return f"Triton cannot be used: {' '.join(str(error).split())[:200]}"
    if not torch.equal(made.of_blocks[0], compute_block_digests(sample)):
        raise RuntimeError(f"{device} computed two different digests of the same words; one of them is wrong")
    return ""


class OutputDigests:
    """The digests of `repeats` outputs of the same shape.

    With Triton, only `read`, `differing_repeats` and `differing` wait for the device. `of_blocks` is int64[repeats, blocks].
    """

    def __init__(
        self, output: Any, repeats: int, block_words: int = BLOCK_WORDS, *, by_triton: bool | None = None
    ) -> None:
        self.block_words = block_words
        self.blocks = -(-view_as_int64(output).numel() // block_words)
        device = output.device
        self.by_triton = not explain_missing_triton(str(device)) if by_triton is None else by_triton
        self.of_blocks = torch.zeros((repeats, self.blocks), dtype=torch.int64, device=device)
        self._counter = torch.zeros(1, dtype=torch.int64, device=device)
        self._places = torch.zeros((KEPT, 2), dtype=torch.int64, device=device)
        self._words = torch.zeros((KEPT, block_words), dtype=torch.int64, device=device)

    def add(self, repeat: int, output: Any) -> None:
        """Digest the output of one repeat; those after the first are compared with it."""
        words = view_as_int64(output)
        if not self.by_triton:
            self._add_by_torch(repeat, words)
            return
        importlib.import_module("preflight.kernels.digest_kernel").digest_kernel[(self.blocks,)](
            words,
            self.of_blocks,
            self._counter,
            self._places,
            self._words,
            words.numel(),
            self.blocks,
            repeat,
            COMPARE=repeat > 0,
            BLOCK=self.block_words,
            ROOM=KEPT,
        )

    def _add_by_torch(self, repeat: int, words: Any) -> None:
        self.of_blocks[repeat] = compute_block_digests(words, self.block_words)
        for block in (self.of_blocks[repeat] != self.of_blocks[0]).nonzero().flatten().tolist():
            slot = int(self._counter)
            self._counter += 1
            if slot >= KEPT:
                continue
            part = words[block * self.block_words : (block + 1) * self.block_words]
            self._places[slot] = torch.tensor((repeat, block))
            self._words[slot, : part.numel()] = part

    def read(self) -> list[str]:
        """One digest for each repeat, 16 hexadecimal figures."""
        places = torch.arange(1, self.blocks + 1, dtype=torch.int64, device=self.of_blocks.device)
        totals = (self.of_blocks * (places * 2 + 1)).sum(1)  # odd factors: swapped blocks are not equal
        return [f"{total & ALL_BITS:016x}" for total in totals.tolist()]

    def differing_repeats(self) -> list[int]:
        """The repeats whose digest of any block is not that of repeat 0."""
        return (self.of_blocks != self.of_blocks[0]).any(1).nonzero().flatten().tolist()  # type: ignore[no-any-return]  # torch has no types here

    def differing(self) -> list[DifferingBlock]:
        """The blocks set aside, by repeat and place."""
        many = min(int(self._counter), KEPT)
        places, words = self._places[:many].tolist(), self._words[:many].tolist()
        return sorted(
            DifferingBlock(repeat, block, [word & ALL_BITS for word in row])
            for (repeat, block), row in zip(places, words, strict=True)
        )


def compute_digest(output: Any, block_words: int = BLOCK_WORDS) -> str:
    """The digest of one tensor, 16 hexadecimal figures."""
    one = OutputDigests(output, 1, block_words)
    one.add(0, output)
    return one.read()[0]
