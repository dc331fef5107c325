"""GPUDirect RDMA of a rail: data of an RDMA port to itself from the memory of the nearest GPU, and its judgement.

What prevents it is a setting of the node, never a fault of a device: without a tool or a kernel for it, nothing was tested.
"""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from preflight.host import rdma_loop
from preflight.host.gpu_locality import SAME_SWITCH, NearGpu, find_nearest_gpu
from preflight.results import Figure
from vocabulary.hardware.machine_files import Machine

FIGURE = "rail_gpu_rate"
HOST_SHARE = 0.5  # of the port's rate from host memory
ADVICE = "switch PCIe ACS and the IOMMU's translation off, and check that adapter and GPU are below one PCIe switch"


class GpuRailRun(msgspec.Struct, frozen=True):
    """What came of one rail: a figure, or why there is none, as a remark, a misconfiguration or an unsettled failure."""

    gpu: NearGpu | None = None
    figure: Figure | None = None
    remark: str = ""
    wrong: str = ""
    unsure: str = ""


def measure_gpu_rail(
    machine: Machine, name: str, uuids: Collection[str], tcp_port: int, host_rate: float
) -> GpuRailRun:
    """Run the port's loop from the memory of the nearest of these GPUs; nothing without a GPU."""
    device, _, port = name.partition("/")
    gpu = find_nearest_gpu(machine, f"/sys/class/infiniband/{device}/device", uuids)
    if gpu is None:
        return GpuRailRun()
    memory = rdma_loop.plan_gpu_memory(machine, rdma_loop.read_tool_options(), gpu.address)
    if isinstance(memory, str):
        return GpuRailRun(gpu, remark=f"{name}: {memory}")
    try:
        rate = rdma_loop.measure_rdma_loop(device, port, tcp_port, memory)
    except rdma_loop.GpuMemoryError as error:
        return _describe_unusable_memory(name, gpu, memory, error)
    except OSError as error:
        return GpuRailRun(gpu, unsure=f"from the memory of the GPU at {gpu.address}: {error}")
    if rate is None:
        return GpuRailRun(gpu)
    figure = Figure(name=FIGURE, value=round(rate, 4), unit="GB/s", setting=gpu.shares)
    return GpuRailRun(gpu, figure, remark=_describe_low_share(name, rate, host_rate, gpu))


def _describe_unusable_memory(
    name: str, gpu: NearGpu, memory: rdma_loop.GpuMemory, error: rdma_loop.GpuMemoryError
) -> GpuRailRun:
    """Only a loaded module that does not do its work is something to put right; the rest is merely not set up."""
    if not error.refused:
        return GpuRailRun(gpu, remark=f"{name}: no memory of the GPU at {gpu.address} could be used: {error}")
    if memory.dmabuf:
        words = f"nvidia_peermem is not loaded and dmabuf does not work: {error}; run modprobe nvidia_peermem"
        return GpuRailRun(gpu, remark=f"{name}: {words}")
    words = f"nvidia_peermem is loaded, but the adapter cannot use the memory of the GPU at {gpu.address}: {error}"
    return GpuRailRun(gpu, wrong=f"{words}; load nvidia_peermem again after the adapter's driver")


def _describe_low_share(name: str, rate: float, host_rate: float, gpu: NearGpu) -> str:
    if rate >= HOST_SHARE * host_rate:
        return ""
    low = f"{name} carries {rate:.3g} GB/s from the memory of the GPU at {gpu.address}, {host_rate:.3g} from the host's"
    if gpu.shares != SAME_SWITCH:
        return f"{low}; they share no PCIe switch ({gpu.shares})"
    return f"{low}; {ADVICE}"
