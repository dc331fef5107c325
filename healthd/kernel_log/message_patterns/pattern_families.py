"""The explicit list of families."""

from __future__ import annotations

from healthd.kernel_log.message_patterns.filesystem import FILESYSTEM
from healthd.kernel_log.message_patterns.host_memory import MEMORY
from healthd.kernel_log.message_patterns.kernel_stalls import CPU, LOCKUP, OOM
from healthd.kernel_log.message_patterns.line_pattern import PatternFamily
from healthd.kernel_log.message_patterns.mlx5 import MLX5
from healthd.kernel_log.message_patterns.nvidia_driver import NVIDIA
from healthd.kernel_log.message_patterns.nvme import NVME
from healthd.kernel_log.message_patterns.pcie_aer import AER
from healthd.kernel_log.message_patterns.program_crashes import PROGRAMS

FAMILIES: tuple[PatternFamily, ...] = (NVIDIA, AER, MEMORY, MLX5, NVME, FILESYSTEM, LOCKUP, OOM, CPU, PROGRAMS)
