"""Programs of `on_chip_memory` without Triton: they return their words, spread over the SMs of a simulated device."""

from __future__ import annotations

import pytest
import torch

from preflight.kernels.on_chip_words import FAULT_WORD, HELD_WORDS, L1, LINE_WORDS, ProgramOutputs, SourceWords

SMS = 4  # of the simulated device


def run_simulated_programs(
    memory: str, source: SourceWords, programs: int, window: int, fault: int, mask: int
) -> ProgramOutputs:
    """As `on_chip_kernels.run_programs`."""
    assert programs * window == source.lines.shape[0]
    kept = torch.zeros_like(source.held[:LINE_WORDS]) if memory == L1 else source.held
    words = kept.repeat(programs, 1)
    assert words.shape[1] == (LINE_WORDS if memory == L1 else HELD_WORDS)
    if fault >= 0:
        words[fault, FAULT_WORD] ^= mask
    return ProgramOutputs(words, torch.arange(programs, dtype=torch.int32, device=source.held.device) % SMS)


def install_programs(patch: pytest.MonkeyPatch) -> None:
    """Use them in this process."""
    patch.setattr("preflight.checks.on_chip_memory.find_triton_failure", lambda *_: "")
    patch.setattr("preflight.checks.on_chip_memory.load_kernels", lambda: run_simulated_programs)
