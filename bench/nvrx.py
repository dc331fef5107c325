"""NVIDIA's resiliency extension, for comparison: its heartbeat and sections (to a monitor process), its straggler section.

The straggler section runs without CUPTI here, which needs a GPU: that is its least cost. Its own numbers are to be had
only with a collective and a device synchronisation (`generate_report`), which is not in it.
"""

from __future__ import annotations

import importlib
import logging
import os
from collections.abc import Callable, Iterator
from typing import Any

CALLS = 20_000


def iterate_nvrx_calls(directory: str) -> Iterator[tuple[str, Callable[[], object], int]]:
    """Name, deed and how often to time it; nothing but a line of text where the extension is not installed."""
    try:
        tolerance = importlib.import_module("nvidia_resiliency_ext.fault_tolerance")
        straggler = importlib.import_module("nvidia_resiliency_ext.straggler")
    except ImportError as error:
        print(f"nvidia-resiliency-ext is not compared: {error}")
        return
    yield from _to_a_monitor(tolerance, directory)
    yield _straggler_section(straggler.Detector)


def _to_a_monitor(tolerance: Any, directory: str) -> Iterator[tuple[str, Callable[[], object], int]]:
    client_module = importlib.import_module("nvidia_resiliency_ext.fault_tolerance.rank_monitor_client")
    server_module = importlib.import_module("nvidia_resiliency_ext.fault_tolerance.rank_monitor_server")
    logging.disable(logging.CRITICAL)
    socket = os.path.join(directory, "monitor.sock")  # noqa: PTH118 - the extension wants text
    os.environ |= {"FT_RANK_MONITOR_IPC_SOCKET": socket, "RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": "1"}
    config = tolerance.FaultToleranceConfig(rank_section_timeouts={"forward": 600.0})
    monitor = server_module.RankMonitorServer.run_in_subprocess(config, socket)
    client = client_module.RankMonitorClient()
    client.init_workload_monitoring()
    try:
        yield "nvrx: a heartbeat", client.send_heartbeat, CALLS

        def pair() -> None:
            client.start_section("forward")
            client.end_section("forward")

        yield "nvrx: start_section + end_section", pair, CALLS
    finally:
        client.shutdown_workload_monitoring()
        monitor.kill()
        monitor.join()


def _straggler_section(detector: Any) -> tuple[str, Callable[[], object], int]:
    detector.initialized, detector.custom_sections, detector.profiling_interval = True, {}, 1

    def section() -> None:
        with detector.detection_section("forward", profile_cuda=False):
            pass

    return "nvrx: a straggler section, without CUPTI", section, CALLS
