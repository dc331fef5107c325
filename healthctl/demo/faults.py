"""How a GPU is made to fail: in the pretended driver and the kernel log, or, beside a real driver, in the log alone.

Nothing is ever done to a real GPU; what the real driver says of it stays true. So there the first fault is another one
that leaves time to save: XID 154, by which a driver asks for a drain and a reset.
"""

from __future__ import annotations

import ctypes
import importlib.util
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol

import msgspec

from healthctl.demo.simulated_gpus import SimulatedGpus
from healthctl.process_supervision.supervised_programs import ProgramError
from vocabulary.identity import canonical_pci

FAKE_LIBRARY = Path(__file__).resolve().parents[2] / "tests" / "nodes" / "fake_nvml" / "build.py"
WORN_GPU, LOST_GPU = 3, 5
LOOK_DEADLINE_S = 20.0
_LOOK = """
import pynvml
pynvml.nvmlInit()
first = pynvml.nvmlDeviceGetHandleByIndex(0)
print(pynvml.nvmlDeviceGetName(first), pynvml.nvmlDeviceGetPciInfo(first).busId, sep="|")
"""


class FaultLine(msgspec.Struct, frozen=True):
    """A line for the kernel log, and what a person is told of the fault. `detail`: the driver's own words, if not usual."""

    pci: str
    code: int
    told: str
    detail: str = ""


class FaultInjector(Protocol):
    """The two faults of the story. `worn_kind` and `lost_kind` are the findings that decide."""

    driver: str
    worn_kind: str
    lost_kind: str
    needs_reset: bool

    def nvml_config(self) -> dict[str, object]:
        """What healthd's configuration says of the driver's library."""
        ...

    def env(self, node: str) -> dict[str, str]:
        """What healthd's environment says of it."""
        ...

    def reset_command(self, node: str) -> list[str]:
        """The node's `reset_gpu_command`; empty for the usual one."""
        ...

    def worn(self, node: str) -> FaultLine:
        """What the kernel log gets when a GPU that still works must be taken out."""
        ...

    def lost(self, node: str) -> FaultLine:
        """What the kernel log gets when a GPU is gone."""
        ...

    def happen(self, node: str, line: FaultLine) -> None:
        """What the driver itself shows from then on."""
        ...


class SimulatedDriver:
    """The fake library: eight GPUs a node."""

    driver = "pretended: NVML calls go to a library built from tests/nodes/fake_nvml; eight GPUs a node"
    worn_kind, lost_kind = "row_remap/pending", "xid/79"
    needs_reset = True

    def __init__(self, gpus: Mapping[str, SimulatedGpus], library: Path) -> None:
        self._gpus = gpus
        self._library = library

    def nvml_config(self) -> dict[str, object]:
        """Five sweeps a second: the dear readings come with every tenth, and an audience waits."""
        return {"library": str(self._library), "interval_s": 0.2, "deadline_s": 2}

    def env(self, node: str) -> dict[str, str]:
        """The scenario for healthd's library, and the library for preflight."""
        return {"FAKE_NVML_SCENARIO": str(self._gpus[node].scenario), "HEALTHD_NVML_LIBRARY": str(self._library)}

    def reset_command(self, node: str) -> list[str]:
        """What takes a pending remap into effect in the scenario."""
        return [sys.executable, "-m", "healthctl.demo.simulated_gpus", str(self._gpus[node].scenario), "{gpu}"]

    def worn(self, node: str) -> FaultLine:
        """A row remap is pending."""
        return FaultLine(
            self._gpus[node].pci(WORN_GPU), 63, f"GPU {WORN_GPU}: XID 63, a worn memory row waits to be remapped"
        )

    def lost(self, node: str) -> FaultLine:
        """It falls off the bus."""
        return FaultLine(self._gpus[node].pci(LOST_GPU), 79, f"GPU {LOST_GPU}: XID 79, and its driver calls hang")

    def happen(self, node: str, line: FaultLine) -> None:
        """The flag is up, or calls hang."""
        if line.code == 79:
            self._gpus[node].hang(LOST_GPU)
        else:
            self._gpus[node].remap_pending(WORN_GPU)


class RealDriver:
    """The machine's own library and GPU, which every pretend node then has."""

    worn_kind, lost_kind = "xid/154", "xid/79"
    needs_reset = False

    def __init__(self, name: str, pci: str) -> None:
        self.driver = (
            f"real: this machine's {name} at {pci}, which every node shows; faults are in the kernel log alone"
        )
        self._pci = pci

    def nvml_config(self) -> dict[str, object]:
        """As it comes."""
        return {}

    def env(self, node: str) -> dict[str, str]:  # noqa: ARG002 - all nodes have the same
        """As it comes."""
        return {}

    def reset_command(self, node: str) -> list[str]:  # noqa: ARG002 - all nodes have the same
        """The usual one; no step of the story uses it."""
        return []

    def worn(self, node: str) -> FaultLine:  # noqa: ARG002 - all nodes have the same
        """The driver asks for a drain and a reset."""
        detail = "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
        return FaultLine(self._pci, 154, "XID 154: the driver asks to drain and reset the GPU", detail)

    def lost(self, node: str) -> FaultLine:  # noqa: ARG002 - all nodes have the same
        """It falls off the bus, says the log."""
        return FaultLine(self._pci, 79, "XID 79")

    def happen(self, node: str, line: FaultLine) -> None:
        """Nothing: the GPU is well."""


def find_real_driver() -> RealDriver | None:
    """This machine's own GPU, if it has one that answers. Asked by a child process: a sick driver may hang."""
    try:
        ctypes.CDLL("libnvidia-ml.so.1")
    except OSError:
        return None
    try:
        done = subprocess.run(
            [sys.executable, "-c", _LOOK], capture_output=True, text=True, timeout=LOOK_DEADLINE_S, check=False
        )
    except subprocess.TimeoutExpired:
        return None
    name, _, address = done.stdout.strip().partition("|")
    return RealDriver(name, canonical_pci(address)) if done.returncode == 0 and address else None


def build_library(directory: Path) -> Path:
    """The fake driver library, built with the machine's C compiler.

    Raises:
        ProgramError: there is no compiler, or it fails.
    """
    spec = importlib.util.spec_from_file_location("fake_nvml_build", FAKE_LIBRARY)
    if spec is None or spec.loader is None or not FAKE_LIBRARY.exists():
        raise ProgramError(f"{FAKE_LIBRARY} cannot be loaded; the demo runs from a source checkout")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    try:
        built: Path = module.build(directory / "build")
    except RuntimeError as error:
        raise ProgramError(str(error)) from error
    return built
