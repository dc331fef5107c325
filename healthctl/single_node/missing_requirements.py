"""What this machine lacks for a GPU node, in the doctor's words."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from healthctl.doctor.diagnosis import Diagnosis, DiagnosisState, diagnose_absent
from healthctl.doctor.driver_checks import check_driver, check_hardware
from healthctl.doctor.kernel_log_checks import check_kernel_log
from healthd.config import load_node_config


def list_missing_requirements(healthd_config: Path) -> Iterator[Diagnosis]:
    """Everything that is not as on a whole GPU node. Asks the driver in a child process, so a sick one cannot stop us."""
    config = load_node_config(healthd_config)
    for part in (check_hardware, check_driver, check_kernel_log):
        yield from (advice for advice in part(config) if advice.state is not DiagnosisState.GOOD)
    if importlib.util.find_spec("torch") is None:
        why = "without it no preflight runs, so nothing can prove a GPU fit"
        yield diagnose_absent("PyTorch", "not installed beside healthctl", why, "pip install 'gpu-healthd[preflight]'")


def has_gpus(advice: Sequence[Diagnosis]) -> bool:
    """Whether the driver answered and knows a GPU, as far as what is lacking tells."""
    return not any(a.part == "NVML" or (a.part == "GPUs" and a.state is DiagnosisState.ABSENT) for a in advice)
