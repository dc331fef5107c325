"""Checks of what orders need on this node: GPU reset and preflight."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator

from healthctl.doctor.diagnosis import Diagnosis, diagnose_absent, diagnose_bad, diagnose_good
from healthd.config import Config
from vocabulary.order import OrderKind

TORCH_S = 60.0


def check_order_prerequisites(config: Config) -> Iterator[Diagnosis]:
    """Check for the programs that orders need."""
    if os.geteuid() == 0:
        yield diagnose_good("user", "root")
    else:
        why = "the kernel log, NVML's privileged calls and other users' beacons require root"
        yield diagnose_bad("user", f"user {os.geteuid()}, not root", why, "run the doctor, and healthd, as root")
    if OrderKind.RESET_GPU in config.orders.allow:
        program = config.orders.reset_gpu_command[0]
        found = shutil.which(program)
        why = "an order cannot reset a GPU with a pending row remap: such nodes wait for an operator"
        yield (
            diagnose_good("reset", found)
            if found
            else diagnose_absent("reset", f"no program {program} on PATH", why, f"install {program}")
        )
    if OrderKind.RUN_PREFLIGHT in config.orders.allow:
        yield _check_preflight(config.orders.preflight_command[0])


def _check_preflight(python: str) -> Diagnosis:
    why = "an isolated node returns only after a passed preflight"
    todo = "install it beside healthd: pip install 'gpu-healthd[preflight]'"
    if shutil.which(python) is None:
        return diagnose_bad("preflight", f"no program {python}", why, "correct orders.preflight_command")
    if not python.rpartition("/")[2].startswith("python"):
        return diagnose_good("preflight", f"{python} (a site-specific program)")
    code = "import torch; print(torch.__version__, 'CUDA' if torch.cuda.is_available() else 'no CUDA')"
    try:
        done = subprocess.run([python, "-c", code], capture_output=True, text=True, timeout=TORCH_S, check=False)
    except subprocess.TimeoutExpired:
        return diagnose_bad(
            "preflight", f"importing torch takes over {TORCH_S:.0f} s", why, "check the disk that torch is on"
        )
    if done.returncode != 0:
        return diagnose_bad("preflight", f"{python} has no torch", why, todo)
    version = done.stdout.strip()
    if version.endswith("no CUDA"):
        todo = "GPU tests need a torch built for CUDA, and the driver"
        return diagnose_absent(
            "preflight", f"torch {version}", "it tests only the host's memory and cores, and reports that", todo
        )
    return diagnose_good("preflight", f"torch {version}")
