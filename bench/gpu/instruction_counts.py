"""What a compiled kernel costs by its own machine code: registers, spills, and the instructions of the path that healthy memory takes.

A bound, not a measurement: the memory's latency and the clock under load are not in it.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path
from typing import NamedTuple

WARPS = 4  # of a program
SCHEDULERS = 4  # of a multiprocessor, on every architecture here: each issues one instruction a clock
REGISTERS, WARPS_MAX, REGISTER_STEP = 65536, {80: 64, 89: 48, 90: 64, 100: 64, 120: 48}, 8
INTEGER_CLOCKS = 2  # a warp's integer instruction occupies 16 lanes for two clocks
_FUSED = ("IMAD", "FFMA", "FMUL", "FADD")  # these go to the multipliers, beside the integer lanes
_ELSEWHERE = (
    "LD",
    "ST",
    "ATOM",
    "RED",
    "S2",
    "CS2",
    "U",
    "R2UR",
    "BAR",
    "BRA",
    "EXIT",
    "BSSY",
    "BSYNC",
    "NOP",
    "ERRBAR",
)
_LINE = re.compile(r"/\*[0-9a-f]{4,}\*/\s+(?:(@!?U?P\w+)\s+)?([A-Z][\w.]*)([^;]*);")
_LABEL = re.compile(r"^(\.L_x_\d+):")
_TARGET = re.compile(r"\.L_x_\d+")
_USAGE = re.compile(r"REG:(\d+) STACK:(\d+) SHARED:(\d+) LOCAL:(\d+)")


class Chip(NamedTuple):
    """A GPU's data sheet: multiprocessors, boost clock, bytes a second."""

    name: str
    architecture: int
    sms: int
    clock: float
    bandwidth: float


CHIPS = (
    Chip("A100 80 GB", 80, 108, 1.41e9, 2.04e12),
    Chip("L40S", 89, 142, 2.52e9, 0.864e12),
    Chip("H200", 90, 132, 1.755e9, 4.8e12),
    Chip("B200", 100, 148, 1.9e9, 8e12),
    Chip("RTX PRO 6000", 120, 188, 2.4e9, 1.79e12),
)


class Instruction(NamedTuple):
    """One line of machine code; `target` is the label of a branch."""

    guard: str
    opcode: str
    target: str


class KernelCost(NamedTuple):
    """`healthy` are the opcodes on the path on which nothing is wrong; see `find_healthy_path`."""

    registers: int
    spilled_bytes: int
    healthy: tuple[str, ...]

    @property
    def clocks(self) -> int:
        """The least clocks of a scheduler for one warp: its instructions, or those of the busier kind of lanes."""
        fused = sum(INTEGER_CLOCKS * (1 + (".WIDE" in op)) for op in self.healthy if op.startswith(_FUSED))
        integer = sum(INTEGER_CLOCKS for op in self.healthy if not op.startswith((*_FUSED, *_ELSEWHERE)))
        return max(len(self.healthy), fused, integer)

    def rate(self, chip: Chip, program_bytes: int) -> float:
        """Bytes a second that the instructions allow, if a program moves `program_bytes`."""
        return chip.sms * chip.clock * SCHEDULERS / (WARPS * self.clocks) * program_bytes

    def occupancy(self, architecture: int) -> float:
        """Resident warps over those that the architecture can hold, as far as registers decide."""
        each = -(-self.registers // REGISTER_STEP) * REGISTER_STEP * 32 * WARPS
        return min(REGISTERS // each * WARPS / WARPS_MAX[architecture], 1.0)


def read_kernel_cost(cubin: bytes, tools: Path, *, code: bool) -> KernelCost:
    """`tools` holds the nvdisasm and cuobjdump that Triton brings. `code`: also disassemble, which takes a quarter of a second."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        usage = _run(tools / "cuobjdump", "-res-usage", file.name)
        lines, labels = parse_code(_run(tools / "nvdisasm", "-c", file.name)) if code else ([], {})
    if not (found := _USAGE.search(usage)):
        raise ValueError(f"cuobjdump names no registers: {usage[:200]!r}")
    registers, stack, _, local = map(int, found.groups())
    return KernelCost(
        registers,
        stack + local,
        find_healthy_path(lines, labels) if code else (),
    )


def parse_code(text: str) -> tuple[list[Instruction], dict[str, int]]:
    """The instructions of nvdisasm's listing, and which of them each label stands before."""
    lines: list[Instruction] = []
    labels: dict[str, int] = {}
    for line in text.splitlines():
        if label := _LABEL.match(line.strip()):
            labels[label[1]] = len(lines)
        elif code := _LINE.search(line):
            target = _TARGET.search(code[3])
            lines.append(Instruction(code[1] or "", code[2], target[0] if target else ""))
    return lines, labels


def find_healthy_path(lines: list[Instruction], labels: dict[str, int]) -> tuple[str, ...]:
    """The way from the entry to an exit with the fewest barriers, and of these the longest.

    What is done with a wrong block has more barriers: one for each number that a thread fetches for all.
    """
    found = []
    ways: list[tuple[int, list[str]]] = [(0, [])]
    while ways:
        at, path = ways.pop()
        while at < len(lines):
            line = lines[at]
            path.append(line.opcode)
            if line.opcode.startswith("EXIT"):
                found.append(tuple(path))
            ends = line.opcode.startswith(("EXIT", "BRA"))
            if line.opcode.startswith("BRA") and labels[line.target] > at:  # memory kernels have no loops
                ways.append((labels[line.target], list(path)))
            if ends and not line.guard:
                break
            at += 1
    return min(found, key=lambda path: (sum(op.startswith("BAR") for op in path), -len(path)))


def _run(*command: object) -> str:
    return subprocess.run([str(part) for part in command], capture_output=True, text=True, check=True).stdout
