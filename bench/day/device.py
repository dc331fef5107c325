"""One pretended GPU node as its trainers and its driver feel it: files in the node's directory, written by the day, read by all.

As a program it is a node's `reset_gpu_command`:   python -m bench.day.device PLACE reset
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

import msgspec

from healthctl.demo.simulated_gpus import SimulatedGpus

PORT = "sysclass/infiniband/mlx5_0/ports/1"
PORT_UP = {"state": "4: ACTIVE", "phys_state": "5: LinkUp", "rate": "400 Gb/sec (4X NDR)", "link_layer": "InfiniBand"}
STRENGTH = ("", "reset", "reboot", "repair")  # what cures, the weakest first
PORT_DOWN = PORT_UP | {"state": "1: DOWN", "phys_state": "3: Disabled"}


class State(msgspec.Struct, frozen=True):
    """What a rank meets: `event` grows with each fault; `acts` on whoever ran when it came, `stays` on whoever starts later."""

    event: int = 0
    acts: str = ""
    stays: str = ""
    slow: float = 1.0
    cure: str = ""


class Device:
    """The files of one node, below `place`."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self._file = place / "gpu.json"

    def make(self, node: str, number: int) -> None:
        """A node that is well. `number`: of the node, from 1 on."""
        (self.place / "run").mkdir(parents=True, exist_ok=True)
        self.write(State())
        gpus = SimulatedGpus(self.place / "nvml", node, number)
        gpus.all_well()
        (self.place / "well").write_text(gpus.scenario.read_text())
        (self.place / "kernel.log").touch()
        self.new_boot()
        for name, text in PORT_UP.items():
            self._port(name, text)

    def read(self) -> State:
        """What is so now."""
        return msgspec.json.decode(self._file.read_bytes(), type=State)

    def write(self, state: State) -> None:
        """From now on."""
        _replace(self._file, msgspec.json.encode(state).decode())

    def changed(self) -> int:
        """Grows when something was written (ns)."""
        return self._file.stat().st_mtime_ns

    def say(self, line: str) -> None:
        """A line of the kernel."""
        with (self.place / "kernel.log").open("a") as log:
            log.write(line + "\n")

    def driver(self, lines: tuple[str, ...]) -> None:
        """What the driver shows from now on, besides."""
        nvml = self.place / "nvml"
        _replace(nvml, nvml.read_text() + "".join(f"{line}\n" for line in lines))

    def port_down(self) -> None:
        """The network port has no link."""
        for name, text in PORT_DOWN.items():
            self._port(name, text)

    def cured(self, by: str) -> bool:
        """Reset, reboot or repair it; whether that was enough."""
        state = self.read()
        enough = STRENGTH.index(by) >= STRENGTH.index(state.cure)
        if enough:
            self.write(State(state.event))
            _replace(self.place / "nvml", (self.place / "well").read_text())
            for name, text in PORT_UP.items():
                self._port(name, text)
        return enough

    def new_boot(self) -> None:
        """Another boot id: the machine has started anew."""
        text = Path("/proc/sys/kernel/random/uuid").read_text()
        (self.place / "boot_id").write_text(text)  # in place: a mount holds this very file

    def _port(self, name: str, text: str) -> None:
        file = self.place / PORT / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text + "\n")


def _replace(path: Path, text: str) -> None:
    aside = path.with_name(f"{path.name}.new-{time.monotonic_ns()}")
    aside.write_text(text)
    aside.replace(path)


if __name__ == "__main__":
    sys.exit(0 if Device(Path(sys.argv[1])).cured(sys.argv[2]) else 1)
