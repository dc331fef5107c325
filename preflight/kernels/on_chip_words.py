"""The words that programs keep in the memories of a multiprocessor (SM), and which of them came back wrong. Torch only."""

from __future__ import annotations

from typing import Any, NamedTuple

import torch

from preflight.kernels.memory_errors import Piece
from preflight.kernels.memory_patterns import HASH, Pattern, splitmix
from preflight.kernels.torch_memory import TorchWay
from vocabulary.text.plurals import format_count

REGISTERS, SHARED, L1 = "registers", "shared memory", "the L1"
MEMORIES = (REGISTERS, SHARED, L1)
HELD_WORDS = 8192  # of a program, in registers or shared memory: 64 a thread
LINE_WORDS = 512  # of one read from the L1
LINE_FACTOR = -1640531535  # 2^32 over the golden section, as int32: no two lines are alike
TURNS = 13  # moving a word by half of its 13 address bits this often brings it back
FAULT_WORD, FAULT_BIT = 77, 5  # what an injected fault flips
NOT_KNOWN = -1
LISTED = 64


class SourceWords(NamedTuple):
    """What programs read: int32 held[HELD_WORDS], lines[lines, LINE_WORDS], and flips, whose xor is 0."""

    held: Any
    lines: Any
    flips: Any


class ProgramOutputs(NamedTuple):
    """int32 words[program, word] that came back, or for the L1 their wrong bits; int32 sms[program]."""

    words: Any
    sms: Any


class WrongWords(NamedTuple):
    """The wrong words of one memory of one SM; bit n of `bits` is set if bit n of any was wrong."""

    memory: str
    sm: int
    words: int
    bits: int

    def __str__(self) -> str:
        where = "unknown SM" if self.sm == NOT_KNOWN else f"SM {self.sm}"
        bits = [str(bit) for bit in range(32) if self.bits >> bit & 1]
        return f"{where}: {format_count(self.words, 'wrong word')} in {self.memory}, {'bit' if len(bits) == 1 else 'bits'} {', '.join(bits)}"


def build_source_words(seed: int, lines: int, turns: int, device: str) -> SourceWords:
    """Random words of `seed`, and flips for `turns` rounds."""
    words = torch.empty((HELD_WORDS + turns + 1) // 2, dtype=torch.int64, device=device)
    TorchWay().write(Piece(words), Pattern("random", HASH, seed=splitmix(seed)))
    held, flips = words.view(torch.int32)[:HELD_WORDS], words.view(torch.int32)[HELD_WORDS:][:turns]
    flips[-1] = 0
    flips[-1] = xor_words(flips)
    factors = torch.arange(lines, dtype=torch.int32, device=device) * LINE_FACTOR
    return SourceWords(held, held[:LINE_WORDS] ^ factors[:, None], flips)


def xor_words(words: Any) -> int:
    """The xor of all int32 words."""
    folded = 0
    for word in words.tolist():
        folded ^= word
    return folded


def find_wrong_words(memory: str, outputs: ProgramOutputs, source: SourceWords) -> list[WrongWords]:
    """What is wrong, by SM; of at most `LISTED` programs."""
    wrong = outputs.words if memory == L1 else outputs.words ^ source.held
    bad = (wrong != 0).any(1).nonzero().flatten()[:LISTED]
    found: dict[int, WrongWords] = {}
    for sm, words in zip(outputs.sms[bad].tolist(), wrong[bad].tolist(), strict=True):
        before = found.get(sm, WrongWords(memory, sm, 0, 0))
        bits = before.bits
        for word in words:
            bits |= word & 0xFFFF_FFFF
        found[sm] = before._replace(words=before.words + sum(map(bool, words)), bits=bits)
    return [found[sm] for sm in sorted(found)]
