"""The kernel that activates rows, through Triton's interpreter: which lines it reads, and that each injected fault is found."""

from __future__ import annotations

import pytest
import torch

pytest.importorskip("triton")

from preflight.check_context import Context, Device
from preflight.checks.row_hammer import check_row_hammer
from preflight.kernels.aggressor_lines import SIDES, choose_aggressors
from preflight.kernels.hammer_kernels import LANES, hammer_rows
from preflight.kernels.memory_errors import Piece
from preflight.results import Outcome, Result

pytestmark = pytest.mark.torch


def run(fault: str = "") -> Result:
    device = Device(name="cpu:0", torch_name="cpu", index=0, label="host memory", memory_bytes=1 << 17)
    context = Context(device=device, devices=(device,), level="burn-in", seconds=0.0, fault=fault, note=lambda _: None)
    (result,) = check_row_hammer(context)
    return result


def test_sound_memory_passes() -> None:
    result = run()
    assert (result.outcome, result.reason) == (Outcome.PASS, "")
    assert result.evidence["way"] == "triton"
    assert int(result.evidence["reads"]) > 0


@pytest.mark.parametrize(("fault", "outcome"), [("victim_bit", Outcome.FAIL), ("one_flip", Outcome.ERROR)])
def test_each_injected_fault_is_found(fault: str, outcome: Outcome) -> None:
    assert run(fault).outcome is outcome


@pytest.mark.parametrize("number", range(6))
def test_a_program_reads_the_lines_of_its_group_in_every_turn(number: int) -> None:
    pieces = [Piece(torch.arange(8000) + 1), Piece(torch.arange(9000, 14000), 8000)]
    aggressors = choose_aggressors(pieces, number, 5)
    assert aggressors is not None
    lines = [
        int(piece.memory[start + side * aggressors.layout.stride // 8])
        for piece, starts in zip(pieces, aggressors.starts, strict=True)
        for start in starts.tolist()
        for side in range(aggressors.layout.sides)
    ]
    seen = hammer_rows(aggressors, 3)
    assert torch.equal(seen[:, : aggressors.layout.sides].flatten(), torch.tensor(lines, dtype=torch.int32))
    assert not seen[:, aggressors.layout.sides :].any()
    assert not hammer_rows(aggressors, 2).any(), "an even number of turns cancels"


def test_every_line_of_a_group_has_a_lane() -> None:
    assert max(SIDES) <= LANES
