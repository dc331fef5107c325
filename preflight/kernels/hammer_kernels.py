"""The kernel that activates rows: it reads lines that it has just dropped from the L2, so every read goes to memory."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from preflight.kernels.aggressor_lines import Aggressors
from preflight.kernels.tensor_digests import asks_multiprocessor

LANES = 32  # one warp, each lane with a line of its own


@triton.jit(do_not_specialize=["stride", "sides", "turns"])
def hammer_kernel(starts, outputs, stride: tl.int64, sides, turns, LANES: tl.constexpr, DISCARD: tl.constexpr):
    """Read the `sides` lines from the address int64 starts[program] in every turn; a discard leaves them without data.

    The xor of what was read goes to int32 outputs[program, lane].
    """
    lanes = tl.arange(0, LANES)
    program = tl.program_id(0).to(tl.int64)
    wanted = lanes < sides
    lines = tl.load(starts + program) + lanes * stride
    words = lines.to(tl.pointer_type(tl.int32))
    seen = tl.zeros((LANES,), tl.int32)
    for _ in range(turns):
        read = tl.load(words, mask=wanted, other=0, volatile=True)
        seen ^= read
        if DISCARD:
            # Where it is wanted, whatever was read: so it waits for the read, which would share the next one's activation.
            tl.inline_asm_elementwise(
                "{ .reg .pred p; setp.ne.s32 p, $2, 0; @p discard.global.L2 [$1], 128; mov.u32 $0, 0; }",
                "=r,l,r",
                [lines, wanted.to(tl.int32) | read],
                dtype=tl.int32,
                is_pure=False,
                pack=1,
            )
    tl.store(outputs + program * LANES + lanes, seen)


def hammer_rows(aggressors: Aggressors, turns: int, *, discard: bool | None = None) -> Any:
    """Read every line `turns` times, a program for each group. Does not wait."""
    starts = aggressors.list_addresses()
    outputs = torch.empty((aggressors.groups, LANES), dtype=torch.int32, device=starts.device)
    hammer_kernel[(aggressors.groups,)](
        starts,
        outputs,
        *aggressors.layout,
        turns,
        LANES=LANES,
        DISCARD=asks_multiprocessor(starts) if discard is None else discard,
        num_warps=1,
    )
    return outputs
