"""What this machine lacks for a GPU node, as the doctor's diagnoses."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from healthctl.doctor.diagnosis import Diagnosis, DiagnosisState, diagnose_absent
from healthctl.doctor.driver_checks import check_driver, check_hardware
from healthctl.doctor.kernel_log_checks import check_kernel_log
from healthd.config import load_node_config


def list_missing_requirements(healthd_config: Path) -> Iterator[Diagnosis]:
    """Every missing requirement. Queries the driver in a child process, so that a faulty one cannot block this process."""
    config = load_node_config(healthd_config)
    for part in (check_hardware, check_driver, check_kernel_log):
        yield from (advice for advice in part(config) if advice.state is not DiagnosisState.GOOD)
    if importlib.util.find_spec("torch") is None:
        why = "without it no preflight can run, so GPUs cannot be qualified"
        yield diagnose_absent("PyTorch", "not installed beside healthctl", why, "pip install 'gpu-healthd[preflight]'")


def has_gpus(advice: Sequence[Diagnosis]) -> bool:
    """Whether the driver responded and reports a GPU, according to the missing requirements."""
    return not any(a.part == "NVML" or (a.part == "GPUs" and a.state is DiagnosisState.ABSENT) for a in advice)
