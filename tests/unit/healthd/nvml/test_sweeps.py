from __future__ import annotations

import math
import time
from typing import Any

from healthd.nvml.child import GpuSweeper


class Gpu:
    """Notes what of it is read."""

    def __init__(self) -> None:
        self.reads: list[str] = []

    def read(self, **tiers: bool) -> dict[str, Any]:
        self.reads.append(" ".join(name for name, wanted in tiers.items() if wanted))
        return {}


def test_of_several_looks_only_the_last_is_dear() -> None:
    gpu: Any = Gpu()
    sweeps = GpuSweeper([gpu])
    sweeps.sweep()
    assert gpu.reads == ["often rarely"], "at first everything"
    assert sweeps.next_look == math.inf
    sweeps.look()
    while sweeps.next_look < math.inf:
        time.sleep(max(0.0, sweeps.next_look - time.monotonic()))
        sweeps.sweep()
    sweeps.sweep()
    *looks, last, after = gpu.reads[1:]
    assert set(looks) == {"often"}
    assert (last, after) == ("often faults", "")
