"""What this machine lacks for a GPU node, in the doctor's words."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator, Sequence
from pathlib import Path

from healthctl.doctor.advice import Advice, State, absent
from healthctl.doctor.driver import driver, hardware
from healthctl.doctor.kernel_log import kernel_log
from healthd.config import load


def lacking(healthd_config: Path) -> Iterator[Advice]:
    """Everything that is not as on a whole GPU node. Asks the driver in a child process, so a sick one cannot stop us."""
    config = load(healthd_config)
    for part in (hardware, driver, kernel_log):
        yield from (advice for advice in part(config) if advice.state is not State.GOOD)
    if importlib.util.find_spec("torch") is None:
        why = "without it no preflight runs, so nothing can prove a GPU fit"
        yield absent("PyTorch", "not installed beside healthctl", why, "pip install 'gpu-healthd[preflight]'")


def has_gpus(advice: Sequence[Advice]) -> bool:
    """Whether the driver answered and knows a GPU, as far as what is lacking tells."""
    return not any(a.part == "NVML" or (a.part == "GPUs" and a.state is State.ABSENT) for a in advice)
