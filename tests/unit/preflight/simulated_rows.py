"""Activations of `row_hammer` without Triton: as on a GPU, the lines that were read hold no data afterwards."""

from __future__ import annotations

import pytest
import torch

from preflight.kernels.aggressor_lines import Aggressors


def hammer_simulated_rows(aggressors: Aggressors, turns: int) -> None:
    """As `hammer_kernels.hammer_rows`."""
    assert turns > 0
    for piece, words in zip(aggressors.pieces, aggressors.list_words(), strict=True):
        piece.memory[words] = torch.full_like(words, 0x0BAD)


def install_rows(patch: pytest.MonkeyPatch) -> None:
    """Use it in this process."""
    patch.setattr("preflight.checks.row_hammer.find_triton_failure", lambda *_: "")
    patch.setattr("preflight.checks.row_hammer.load_kernels", lambda: hammer_simulated_rows)
