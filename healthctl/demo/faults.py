"""Injects GPU faults: through the simulated driver and the kernel log, or, with a real driver, through the kernel log only.

Nothing is done to a real GPU, and its driver reports the truth. So with a real driver the first fault is another one
that leaves time to save: Xid 154, by which a driver requests a drain and a reset.
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
    """A kernel log line, and the text shown for the fault. `detail`: the driver's message, if not the usual one."""

    pci: str
    code: int
    told: str
    detail: str = ""


class FaultInjector(Protocol):
    """The two faults of the scenario. `worn_kind` and `lost_kind` are the deciding findings."""

    driver: str
    worn_kind: str
    lost_kind: str
    needs_reset: bool

    def nvml_config(self) -> dict[str, object]:
        """The driver library settings in healthd's configuration."""

    def env(self, node: str) -> dict[str, str]:
        """The environment of healthd for the driver library."""

    def reset_command(self, node: str) -> list[str]:
        """The node's `reset_gpu_command`; empty for the default."""

    def worn(self, node: str) -> FaultLine:
        """The kernel log line when a GPU that still works must be replaced."""

    def lost(self, node: str) -> FaultLine:
        """The kernel log line when a GPU is lost."""

    def happen(self, node: str, line: FaultLine) -> None:
        """What the driver reports from then on."""


class SimulatedDriver:
    """The simulated driver library: eight GPUs per node."""

    driver = "simulated: NVML calls go to a library built from tests/nodes/fake_nvml; eight GPUs a node"
    worn_kind, lost_kind = "row_remap/pending", "xid/79"
    needs_reset = True

    def __init__(self, gpus: Mapping[str, SimulatedGpus], library: Path) -> None:
        self._gpus = gpus
        self._library = library

    def nvml_config(self) -> dict[str, object]:
        """Five sweeps a second: the expensive readings come with every tenth, and the demo should be fast."""
        return {"library": str(self._library), "interval_s": 0.2, "deadline_s": 2}

    def env(self, node: str) -> dict[str, str]:
        """The scenario file for healthd's library, and the library for preflight."""
        return {"FAKE_NVML_SCENARIO": str(self._gpus[node].scenario), "HEALTHD_NVML_LIBRARY": str(self._library)}

    def reset_command(self, node: str) -> list[str]:
        """A command that applies a pending row remap in the scenario file."""
        return [sys.executable, "-m", "healthctl.demo.simulated_gpus", str(self._gpus[node].scenario), "{gpu}"]

    def worn(self, node: str) -> FaultLine:
        """A row remap is pending."""
        return FaultLine(
            self._gpus[node].pci(WORN_GPU), 63, f"GPU {WORN_GPU}: XID 63, a worn memory row waits to be remapped"
        )

    def lost(self, node: str) -> FaultLine:
        """The GPU falls off the bus."""
        return FaultLine(self._gpus[node].pci(LOST_GPU), 79, f"GPU {LOST_GPU}: XID 79, and its driver calls hang")

    def happen(self, node: str, line: FaultLine) -> None:
        """Set the pending flag, or make calls hang."""
        if line.code == 79:
            self._gpus[node].hang(LOST_GPU)
        else:
            self._gpus[node].remap_pending(WORN_GPU)


class RealDriver:
    """The machine's own driver library and GPU, shared by all simulated nodes."""

    worn_kind, lost_kind = "xid/154", "xid/79"
    needs_reset = False

    def __init__(self, name: str, pci: str) -> None:
        self.driver = (
            f"real: this machine's {name} at {pci}, which every node shows; faults are in the kernel log alone"
        )
        self._pci = pci

    def nvml_config(self) -> dict[str, object]:
        """No settings."""
        return {}

    def env(self, node: str) -> dict[str, str]:  # noqa: ARG002 - all nodes have the same
        """No settings."""
        return {}

    def reset_command(self, node: str) -> list[str]:  # noqa: ARG002 - all nodes have the same
        """The default; no step of the scenario uses it."""
        return []

    def worn(self, node: str) -> FaultLine:  # noqa: ARG002 - all nodes have the same
        """The driver requests a drain and a reset."""
        detail = "GPU recovery action changed from 0x0 (None) to 0x4 (Drain and Reset)"
        return FaultLine(self._pci, 154, "XID 154: the driver asks to drain and reset the GPU", detail)

    def lost(self, node: str) -> FaultLine:  # noqa: ARG002 - all nodes have the same
        """The GPU falls off the bus, according to the log."""
        return FaultLine(self._pci, 79, "XID 79")

    def happen(self, node: str, line: FaultLine) -> None:
        """Nothing: the GPU is healthy."""


def find_real_driver() -> RealDriver | None:
    """This machine's GPU, if it has one that responds. A child process queries it, since a faulty driver may hang."""
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
    """Build the simulated driver library with the machine's C compiler.

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
