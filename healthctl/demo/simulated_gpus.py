"""Eight simulated GPUs of one simulated node: the file that controls the simulated driver library, and the reset of a GPU.

As a program it is the demo's `reset_gpu_command`: it applies a pending row remap in the file, as a real reset would.

    python -m healthctl.demo.simulated_gpus SCENARIO UUID
"""

from __future__ import annotations

import sys
from pathlib import Path

import msgspec

from vocabulary.atomic_file import replace_file

BUS_BASE = 0x10
COUNT = 8


class SimulatedGpus(msgspec.Struct, frozen=True):
    """The GPUs of the node with this number. Each node is its own PCI domain, so that addresses are unique."""

    scenario: Path
    node: str
    number: int

    def pci(self, gpu: int) -> str:
        """The address of one GPU, as in the kernel log."""
        return f"{self.number:04x}:{BUS_BASE + gpu:02x}:00.0"

    def all_well(self) -> None:
        """Write the scenario of a healthy node."""
        self.scenario.parent.mkdir(parents=True, exist_ok=True)
        lines = [
            f"gpus {COUNT}",
            f"domain {self.number:#x}",
            f"bus_base {BUS_BASE:#x}",
            f"uuid_prefix GPU-{self.node}",
            f"serial_prefix {1_650_000 + self.number}",
        ]
        _replace_file(self.scenario, lines)

    def remap_pending(self, gpu: int) -> None:
        """A worn memory row waits for the next reset."""
        self._add(f"pending.{gpu} 1")

    def hang(self, gpu: int) -> None:
        """Driver calls about this GPU never return."""
        self._add(f"hang {gpu}")

    def _add(self, line: str) -> None:
        _replace_file(self.scenario, [*self.scenario.read_text().splitlines(), line])


def reset_simulated_gpu(scenario: Path, uuid: str) -> None:
    """Apply the pending remap of one GPU, or with ``all`` of every GPU."""
    _, _, index = uuid.rpartition("-")
    prefix = "pending." if uuid == "all" else f"pending.{int(index)} "
    lines = scenario.read_text().splitlines()
    _replace_file(scenario, [line for line in lines if not line.startswith(prefix)])


def _replace_file(path: Path, lines: list[str]) -> None:
    """Replace the file atomically, since the library may read it at any time."""
    replace_file(path, "".join(f"{line}\n" for line in lines).encode())


if __name__ == "__main__":
    reset_simulated_gpu(Path(sys.argv[1]), sys.argv[2])
