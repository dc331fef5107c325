"""The explicit list of families."""

from __future__ import annotations

from healthd.grammar.aer import AER
from healthd.grammar.filesystem import FILESYSTEM
from healthd.grammar.form import Family
from healthd.grammar.memory import MEMORY
from healthd.grammar.mlx5 import MLX5
from healthd.grammar.nvidia import NVIDIA
from healthd.grammar.nvme import NVME
from healthd.grammar.programs import PROGRAMS
from healthd.grammar.scheduling import CPU, LOCKUP, OOM

FAMILIES: tuple[Family, ...] = (NVIDIA, AER, MEMORY, MLX5, NVME, FILESYSTEM, LOCKUP, OOM, CPU, PROGRAMS)
