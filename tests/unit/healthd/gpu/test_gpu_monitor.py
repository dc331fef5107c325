"""Which processes hold a GPU, for sources that ask about them."""

from __future__ import annotations

from collections.abc import Callable

from healthd.findings.finding_ledger import FindingLedger
from healthd.findings.gpu_state import GpuState
from healthd.gpu_monitoring.gpu_monitor import GpuMonitor
from healthd.gpu_monitoring.simulated_gpus import SimulatedGpus
from healthd.samples.nvml import Process


def test_the_processes_on_gpus_and_whether_these_work_are_known_as_last_read(gpu: Callable[..., GpuState]) -> None:
    ledger = FindingLedger("n1", "b1")
    monitor = GpuMonitor(ledger, (), {}, SimulatedGpus(ledger, {}))
    assert monitor.processes is None, "nothing is known yet, or while the driver hangs"
    monitor.states = {0: gpu(0, processes=())}
    assert monitor.processes == {}
    monitor.states = {
        0: gpu(0, processes=(Process(7), Process(8)), gpu_percent=100, throttle_mask=0),
        1: gpu(1, processes=(Process(9),), gpu_percent=100, throttle_mask=1),
        2: gpu(2, processes=(Process(10),), gpu_percent=60, throttle_mask=0),
        3: gpu(3, processes=(Process(11),)),
        4: gpu(4),
    }
    assert monitor.processes == {7: True, 8: True, 9: False, 10: False, 11: False}
