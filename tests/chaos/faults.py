"""Kernel lines of a run: hard faults, errors of programs, numbers nobody described, forged lines, garbage."""

from __future__ import annotations

import random

from tests.chaos.plan import GPUS, PORTION_S, QUIET_S, KernelLine, World

HARD = (79, 95, 48, 119, 74, 109)
APPLICATION = (13, 31, 43, 45)
UNKNOWN = (901, 902, 977)
FORGED = (110,)  # a number that no true line of a run has
SAID = {
    13: "Graphics Exception: ESR 0x505730=0x12000e",
    31: "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPC0 GPCCLIENT_T1_0 faulted @ 0x7f0a_00000000",
    43: "Ch 00000010",
    45: "Ch 00000010",
    48: "DBE (double bit error) ECC uncorrectable error",
    74: "NVLink: fatal error detected on link 3(0x10000, 0x0, 0x0, 0x0, 0x0, 0x0, 0x0)",
    79: "GPU has fallen off the bus.",
    95: "Uncontained: LTC TAG (0x2,0x0). Physical address: 0x1ad3f7000",
    109: "Ch 00000010, errorString CTX SWITCH TIMEOUT, Info 0x2c014",
    110: "Security fault",
    119: "Timeout after 6s of waiting for RPC response from GPU0 GSP! Expected function 76 (GSP_RM_CONTROL) (0x2080 0x4).",
}
GARBAGE = ("NVRM: Xid", "NVRM: Xid (PCI:zz): x", "\\x1b[0m ((((", "nvidia-nvswitch3: SXid (PCI:")


def draw_lines(dice: random.Random, world: World) -> tuple[KernelLine, ...]:
    """In the order of their times."""
    lines: list[KernelLine] = []
    for _ in range(dice.choices((1, 2, 3), (4, 4, 2))[0]):
        node, gpu, code = dice.choice(world.nodes), dice.randrange(GPUS), dice.choice(HARD)
        lines += [_line(dice, node, code, gpu) for _ in range(dice.choice((1, 1, 3)))]
    if dice.random() < 0.4:  # one program fails wherever it runs
        code, at_s = dice.choice(APPLICATION), _when(dice)
        lines += [_line(dice, node, code, 0, at_s=at_s + dice.random()) for node in world.nodes[: world.trainers]]
    if dice.random() < 0.5:
        lines.append(_line(dice, dice.choice(world.nodes), dice.choice(UNKNOWN), dice.randrange(GPUS)))
    if dice.random() < 0.5:
        lines.append(_line(dice, dice.choice(world.nodes), dice.choice(FORGED), 0, author="trainer"))
    lines += [_garbage(dice, world) for _ in range(dice.randrange(3))]
    return tuple(sorted(lines, key=lambda line: (line.at_s, line.node)))


def _line(
    dice: random.Random, node: str, code: int, gpu: int, *, author: str = "kernel", at_s: float | None = None
) -> KernelLine:
    said = SAID.get(code, "something new, 0x1")
    text = f"NVRM: Xid (PCI:0000:{0x10 + gpu:02x}:00): {code}, pid=4711, name=python3, {said}"
    return KernelLine(
        at_s=round(_when(dice) if at_s is None else at_s, 3), node=node, author=author, code=code, gpu=gpu, text=text
    )


def _garbage(dice: random.Random, world: World) -> KernelLine:
    text = dice.choice(GARBAGE)
    return KernelLine(
        at_s=round(_when(dice), 3), node=dice.choice(world.nodes), author="kernel", code=0, gpu=0, text=text
    )


def _when(dice: random.Random) -> float:
    return QUIET_S + dice.random() * (PORTION_S - QUIET_S)
