"""Traffic of an RDMA port to itself by perftest: through the adapter and PCIe both ways, not through the cable.

The data is in host memory, or in a GPU's, which the adapter then reads and writes itself (GPUDirect RDMA). Not run on an
RDMA adapter so far.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Collection

import msgspec

from vocabulary.hardware.machine_files import Machine

RDMA_TOOL = "ib_write_bw"
TIMEOUT_S = 10.0
HELP_S = 5.0
RDMA_SECONDS = 2
BUS_ID, DMABUF = "--use_cuda_bus_id", "--use_cuda_dmabuf"
DMABUF_KERNEL = (5, 12)  # the first whose RDMA drivers register dma-buf memory
_PEER_MODULES = ("nvidia_peermem", "nv_peer_mem")  # the driver's own, and its predecessor
_ROW = re.compile(r"^\s*\d+\s+\d+\s+[\d.]+\s+([\d.]+)", re.MULTILINE)
# perftest's own texts: the adapter may not use the GPU's memory, or CUDA gives none.
_REGISTRATION = re.compile(
    r"Couldn't allocate MR|failed to create mr|DMA-BUF is not supported|does not support DMA-BUF|"
    r"cuMemGetHandleForAddressRange error",
    re.IGNORECASE,
)
_CUDA = re.compile(
    r"\bcu[A-Z]\w+(?:\(\w*\))? (?:returned|error|failed)|CUDA_SUCCESS|Couldn't init GPU|No such device ID|"
    r"support CUDA|Unsupported memory type"
)


class GpuMemory(msgspec.Struct, frozen=True):
    """Memory of the GPU at a PCI address. `dmabuf`: shared by the kernel's dma-buf, else by a peer memory module."""

    address: str
    dmabuf: bool = False


class GpuMemoryError(Exception):
    """The tool could not use the GPU's memory. `refused`: the adapter may not; else CUDA gave none."""

    def __init__(self, words: str, *, refused: bool) -> None:
        super().__init__(words)
        self.refused = refused


def read_tool_options() -> frozenset[str]:
    """The tool's options for CUDA; none if it was built without, or does not answer."""
    try:
        done = subprocess.run([RDMA_TOOL, "--help"], capture_output=True, text=True, check=False, timeout=HELP_S)
    except (OSError, subprocess.TimeoutExpired):
        return frozenset()
    return parse_cuda_options(done.stdout + done.stderr)


def parse_cuda_options(text: str) -> frozenset[str]:
    """The options for CUDA in the tool's help."""
    return frozenset(re.findall(r"--use_cuda\w*", text))


def plan_gpu_memory(machine: Machine, options: Collection[str], address: str) -> GpuMemory | str:
    """How adapters can use this GPU's memory, or why they cannot."""
    if BUS_ID not in options:
        return f"{RDMA_TOOL} was built without CUDA, so GPU memory was not tested; install a perftest built with CUDA"
    if any(machine.exists(f"/sys/module/{name}") for name in _PEER_MODULES):
        return GpuMemory(address)
    release = machine.text("/proc/sys/kernel/osrelease") or ""
    if _parse_release(release) < DMABUF_KERNEL:
        lacks = f"the kernel has no dmabuf for RDMA: {release or 'unknown'} is older than 5.12"
    elif DMABUF not in options:
        lacks = f"{RDMA_TOOL} was built without dmabuf"
    else:
        return GpuMemory(address, dmabuf=True)
    return f"nvidia_peermem is not loaded and {lacks}; run modprobe nvidia_peermem"


def measure_rdma_loop(device: str, port: str, tcp_port: int, gpu: GpuMemory | None = None) -> float | None:
    """GB/s of an RDMA port to itself; None if the tool is not installed.

    Raises:
        OSError: the tool failed; the text holds its last words.
        GpuMemoryError: it could not use the GPU's memory.
    """
    if shutil.which(RDMA_TOOL) is None:
        return None
    place = ["-d", device, "-i", port, "-p", str(tcp_port)]
    command = [RDMA_TOOL, *place, "-F", "--report_gbits", "-D", str(RDMA_SECONDS)]
    environ = dict(os.environ)
    if gpu is not None:
        command += [f"{BUS_ID}={gpu.address}", *([DMABUF] if gpu.dmabuf else [])]
        environ["MLX5_SCATTER_TO_CQE"] = "0"  # the adapter's driver would write small answers with the processor
    with subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, errors="replace", env=environ
    ) as server:
        try:
            done = _run_client([*command, "127.0.0.1"], environ, server)
            failed = server.poll()
        finally:
            server.kill()
        said = server.stdout.read() if server.stdout else ""
    gigabits = parse_average_gigabits(done.stdout)
    if done.returncode == 0 and gigabits is not None:
        return gigabits / 8
    words = said if failed else done.stderr or done.stdout
    raise _build_error(done.returncode, words, f"{done.stdout}\n{done.stderr}\n{said}", gpu)


def _run_client(
    command: list[str], environ: dict[str, str], server: subprocess.Popen[str]
) -> subprocess.CompletedProcess[str]:
    """Retry until the server listens, with a deadline, and no longer than the server lives."""
    until = time.monotonic() + TIMEOUT_S
    while True:
        try:
            done = subprocess.run(
                command,
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                timeout=RDMA_SECONDS + TIMEOUT_S,
                env=environ,
            )
        except subprocess.TimeoutExpired as error:
            raise OSError(f"{RDMA_TOOL} did not end within {error.timeout:g} s") from error
        if done.returncode == 0 or time.monotonic() > until or server.poll() is not None:
            return done
        time.sleep(0.2)


def _build_error(code: int, words: str, text: str, gpu: GpuMemory | None) -> Exception:
    last = f"{RDMA_TOOL} ended with {code}: {' '.join(words.split())[-200:]}"
    if gpu is None:
        return OSError(last)
    for pattern, refused in ((_REGISTRATION, True), (_CUDA, False)):
        if match := pattern.search(text):
            line = text[text.rfind("\n", 0, match.start()) + 1 :].partition("\n")[0]
            return GpuMemoryError(" ".join(line.split())[:200], refused=refused)
    return OSError(last)


def parse_average_gigabits(text: str) -> float | None:
    """The average in the last row of perftest's table, in Gb/s; None without a row."""
    rows = _ROW.findall(text)
    return float(rows[-1]) if rows else None


def _parse_release(release: str) -> tuple[int, int]:
    match = re.match(r"(\d+)\.(\d+)", release)
    return (int(match[1]), int(match[2])) if match else (0, 0)
