"""GPUDirect RDMA of a rail, with a stand-in for perftest: no adapter is needed."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from preflight.check_context import Context, Device, Note
from preflight.checks import nic_rails
from preflight.expectations.result_judgement import Knowledge, apply_expectations
from preflight.host import rdma_loop
from preflight.host.gpu_locality import FAR, SAME_BRIDGE, SAME_NUMA, SAME_SWITCH, NearGpu, find_nearest_gpu
from preflight.host.rdma_loop import BUS_ID, DMABUF, parse_cuda_options, plan_gpu_memory
from preflight.results import Outcome, Result
from tests.unit.preflight.links.test_network_rails import put, rdma
from vocabulary.hardware.machine_files import Machine

HELP = """Options:
      --use_cuda=<cuda device id> Use CUDA specific device for GPUDirect RDMA testing
      --use_cuda_bus_id=<cuda full BUS id> Use CUDA specific device, based on its full PCIe address
      --use_cuda_dmabuf Use CUDA DMA-BUF for GPUDirect RDMA testing
      --use_hugepages  Use Hugepages instead of contig, memalign allocations.
"""
# The server waits. The client prints the text for its device and memory, and succeeds if that has a row of numbers.
TOOL = """#!/bin/sh
here=$(dirname "$0")
echo "$@" >> "$here/calls"
case "$*" in
*--help*) cat "$here/help"; exit 1;;
*use_cuda*) memory=gpu;;
*) memory=host;;
esac
case "$*" in
*127.0.0.1) ;;
*) echo $$ >> "$here/servers"; touch "$here/up.$2.$memory"; [ -e "$here/ends.$memory" ] && cat "$here/ends.$memory" && exit 1; exec sleep 30;;
esac
until [ -e "$here/up.$2.$memory" ]; do sleep 0.01; done
[ -e "$here/hangs.$memory" ] && exec sleep 30
text="$here/$2.$memory"
[ -e "$text" ] || text="$here/$memory"
cat "$text"
grep -q '^ 65536' "$text"
"""
UUIDS = [f"GPU-{n}" for n in range(4)]


def row(gigabits: float) -> str:
    return f"using DMA-BUF for GPU buffer address at 0x1\n #bytes #iterations\n 65536 1000 0.00 {gigabits} 0.74\n"


def switch(number: int) -> str:
    return f"/sys/devices/pci0000:{number}0/0000:{number}0:01.0/0000:{number}1:00.0"


def gpu(root: Path, address: str, folder: str, uuid: str, numa: int = 0) -> None:
    put(root, f"{folder}/{address}/numa_node", numa)
    put(root, f"/proc/driver/nvidia/gpus/{address}/information", f"Model: \t NVIDIA H200\nGPU UUID: \t {uuid}")
    place = root / "sys/bus/pci/devices" / address
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(root / folder.lstrip("/") / address)


@pytest.fixture
def node(tmp_path: Path) -> Path:
    """Four rails, each with a GPU behind its switch; the kernel has a peer memory module."""
    for number in range(4):
        adapter = tmp_path / switch(number).lstrip("/") / f"0000:{number}2:00.0"
        adapter.mkdir(parents=True)
        (adapter / "numa_node").write_text("0\n")
        place = tmp_path / f"sys/class/infiniband/mlx5_{number}"
        place.mkdir(parents=True)
        (place / "device").symlink_to(adapter)
        rdma(tmp_path, number)
        gpu(tmp_path, f"0000:{number}3:00.0", switch(number), UUIDS[number])
    put(tmp_path, "/proc/sys/kernel/osrelease", "6.8.0-49-generic")
    put(tmp_path, "/sys/module/nvidia_peermem/refcnt", 0)
    return tmp_path


@pytest.fixture
def tool(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """``tool(gpu=text)``: perftest prints these texts, by memory, or by device and memory (``mlx5_2_gpu=…``)."""
    folder = tmp_path / "tools"
    folder.mkdir()
    (folder / rdma_loop.RDMA_TOOL).write_text(TOOL)
    (folder / rdma_loop.RDMA_TOOL).chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def make(options: str = HELP, **texts: str) -> Path:
        (folder / "help").write_text(options)
        for name, text in ({"host": row(392), "gpu": row(388)} | texts).items():
            (folder / ".".join(name.rsplit("_", 1) if "mlx5" in name or "_" in name else [name])).write_text(text)
        return folder

    return make


def check(root: Path, uuids: list[str] = UUIDS, rails: str = "", note: Note = lambda _: None) -> dict[str, Result]:
    devices = tuple(
        Device(name=f"cuda:{n}", torch_name=f"cuda:{n}", index=n, label="GPU", uuid=uuid, product="NVIDIA Simulated")
        for n, uuid in enumerate(uuids)
    )
    context = Context(device=None, devices=devices, level="standard", seconds=1.0, fault="", note=note)
    results = apply_expectations(
        list(nic_rails.check_nic_rails(context, Machine(root), {nic_rails.WANTED_VARIABLE: rails})),
        devices,
        Knowledge(),
    )
    return {result.device: result for result in results}


def calls(folder: Path, text: str = "use_cuda") -> list[str]:
    return [line for line in (folder / "calls").read_text().splitlines() if text in line]


def test_the_gpu_behind_the_same_switch_is_the_nearest(node: Path) -> None:
    adapter = "/sys/class/infiniband/mlx5_2/device"
    assert find_nearest_gpu(Machine(node), adapter, UUIDS) == NearGpu("0000:23:00.0", SAME_SWITCH)
    gpu(node, "0000:2f:00.0", "/sys/devices/pci0000:20", "GPU-bridge", numa=1)
    gpu(node, "0001:01:00.0", "/sys/devices/pci0001:00", "GPU-numa", numa=0)
    gpu(node, "0001:00:00.0", "/sys/devices/pci0001:00", "GPU-far", numa=1)
    found = [
        find_nearest_gpu(Machine(node), adapter, chosen)
        for chosen in (["GPU-far", "GPU-numa", "GPU-bridge"], ["GPU-far", "GPU-numa"], ["GPU-far"], ["GPU-of-others"])
    ]
    assert found == [
        NearGpu("0000:2f:00.0", SAME_BRIDGE),
        NearGpu("0001:01:00.0", SAME_NUMA),
        NearGpu("0001:00:00.0", FAR),
        None,
    ]


@pytest.mark.parametrize("loaded", [True, False])
def test_each_rail_has_a_rate_from_the_nearest_gpus_memory(
    node: Path, tool: Callable[..., Path], *, loaded: bool
) -> None:
    if not loaded:
        (node / "sys/module/nvidia_peermem/refcnt").unlink()
        (node / "sys/module/nvidia_peermem").rmdir()
    folder = tool()
    results = check(node)
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    figures = {(figure.name, figure.setting): figure.value for figure in results["mlx5_1/1"].figures}
    assert figures == {("rail_rate", "loop"): 49.0, ("rail_gpu_rate", SAME_SWITCH): 48.5}
    assert results["mlx5_1/1"].evidence["gpu"] == "0000:13:00.0"
    assert results["mlx5_1/1"].remarks == ()
    own = [line for line in calls(folder) if "mlx5_1 " in line]
    assert len(own) >= 2, "both halves use the GPU's memory"
    assert all(f"{BUS_ID}=0000:13:00.0" in line and (DMABUF in line) is not loaded for line in own)


def test_a_node_without_gpus_says_nothing_about_them(node: Path, tool: Callable[..., Path]) -> None:
    folder, notes = tool(), list[str]()
    results = check(node, [], note=notes.append)
    assert {figure.name for result in results.values() for figure in result.figures} == {"rail_rate"}
    assert {result.remarks for result in results.values()} == {()}
    assert calls(folder) == calls(folder, "--help") == []
    assert not any("GPU" in note for note in notes)


@pytest.mark.parametrize(
    ("options", "release", "words"),
    [
        ("--use_hugepages", "6.8.0", "was built without CUDA"),
        (HELP, "5.4.0-150-generic", "nvidia_peermem is not loaded and the kernel has no dmabuf for RDMA: 5.4.0"),
        (HELP, "5.11", "no dmabuf for RDMA"),
        (HELP, "", "unknown is older"),
        (f"{BUS_ID}=<id>", "5.12.0", "nvidia_peermem is not loaded and ib_write_bw was built without dmabuf"),
    ],
)
def test_what_is_not_set_up_is_a_remark(
    node: Path, tool: Callable[..., Path], options: str, release: str, words: str
) -> None:
    (node / "sys/module/nvidia_peermem/refcnt").unlink()
    (node / "sys/module/nvidia_peermem").rmdir()
    put(node, "/proc/sys/kernel/osrelease", release)
    folder = tool(options)
    result = check(node)["mlx5_0/1"]
    assert (result.outcome, result.locations) == (Outcome.PASS, ())
    assert words in result.remarks[0]
    assert calls(folder) == []


def test_an_older_module_will_do_and_help_is_read_by_words(node: Path) -> None:
    assert parse_cuda_options(HELP) == {"--use_cuda", BUS_ID, DMABUF}
    (node / "sys/module/nvidia_peermem").rename(node / "sys/module/nv_peer_mem")
    memory = plan_gpu_memory(Machine(node), {BUS_ID}, "0000:13:00.0")
    assert memory == rdma_loop.GpuMemory("0000:13:00.0")


@pytest.mark.parametrize(
    ("loaded", "text", "outcome", "words"),
    [
        (True, "Couldn't allocate MR with error=14\n", Outcome.NOT_RUN, "nvidia_peermem is loaded, but the adapter"),
        (True, "failed to create mr\n", Outcome.NOT_RUN, "load nvidia_peermem again"),
        (False, "Couldn't allocate MR\n", Outcome.PASS, "nvidia_peermem is not loaded and dmabuf does not work"),
        (False, "DMA-BUF is not supported on this GPU\n", Outcome.PASS, "run modprobe nvidia_peermem"),
        (True, "initializing CUDA\ncuInit(0) returned 803\n", Outcome.PASS, "could be used: cuInit(0) returned 803"),
        (True, "cuMemAlloc error=2\n", Outcome.PASS, "cuMemAlloc error=2"),
        (True, "cuCtxCreate() error=2\nCouldn't init GPU context: 1\n", Outcome.PASS, "cuCtxCreate() error=2"),
        (True, "using DMA-BUF for GPU\n Completion with error at client\n", Outcome.ERROR, "Completion with error"),
    ],
)
def test_no_failure_of_gpu_memory_accuses_a_device(
    node: Path, tool: Callable[..., Path], *, loaded: bool, text: str, outcome: Outcome, words: str
) -> None:
    if not loaded:
        (node / "sys/module/nvidia_peermem/refcnt").unlink()
        (node / "sys/module/nvidia_peermem").rmdir()
    tool(gpu=text, ends_gpu=text)
    result = check(node)["mlx5_0/1"]
    assert (result.outcome, result.misconfigured) == (outcome, outcome is Outcome.NOT_RUN), result
    assert words in (result.remarks[0] if outcome is Outcome.PASS else result.reason)
    assert result.locations == ()
    assert [figure.name for figure in result.figures] == ["rail_rate"]


def test_a_rail_far_slower_from_its_gpu_than_its_siblings_is_inconclusive_on_an_unmeasured_platform(
    node: Path, tool: Callable[..., Path]
) -> None:
    tool(mlx5_2_gpu=row(90))
    results = check(node)
    slow = results.pop("mlx5_2/1")
    assert {result.outcome for result in results.values()} == {Outcome.PASS}
    assert (slow.outcome, slow.by_limit) == (Outcome.ERROR, True)
    assert "carries 11.2 GB/s from the nearest GPU's memory, ports of the same board 48.5" in slow.reason
    assert "switch PCIe ACS and the IOMMU's translation off" in slow.reason


def test_rails_that_are_all_slow_from_gpu_memory_pass_with_advice(node: Path, tool: Callable[..., Path]) -> None:
    tool(gpu=row(90))
    result = check(node)["mlx5_3/1"]
    assert result.outcome is Outcome.PASS
    assert "11.2 GB/s from the memory of the GPU at 0000:33:00.0, 49 from the host's" in result.remarks[0]
    assert "PCIe ACS" in result.remarks[0]
    far = check(node, ["GPU-0"])["mlx5_3/1"]
    assert "they share no PCIe switch (same NUMA node)" in far.remarks[0]


def test_rails_that_share_no_switch_with_a_gpu_are_not_compared(node: Path, tool: Callable[..., Path]) -> None:
    tool(mlx5_3_gpu=row(90))
    assert {result.outcome for result in check(node, ["GPU-0"]).values()} == {Outcome.PASS}


def test_a_tool_that_hangs_is_ended_with_its_server(
    node: Path, tool: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(rdma_loop, "TIMEOUT_S", 2.0)
    monkeypatch.setattr(rdma_loop, "RDMA_SECONDS", 0)
    folder = tool(hangs_gpu="")
    result = check(node, rails="mlx5_0")["mlx5_0/1"]
    assert result.outcome is Outcome.ERROR
    assert "from the memory of the GPU at 0000:03:00.0: ib_write_bw did not end within 2 s" in result.reason
    servers = [int(pid) for pid in (folder / "servers").read_text().split()]
    assert len(servers) == 2
    assert not any(Path(f"/proc/{pid}").exists() for pid in servers)


def test_a_server_that_ends_is_not_waited_for_and_is_quoted(node: Path, tool: Callable[..., Path]) -> None:
    folder = tool(host=" Couldn't connect to 127.0.0.1\n", ends_host=" Unable to find the device\n")
    result = check(node)["mlx5_0/1"]
    assert result.outcome is Outcome.ERROR
    assert "Unable to find the device" in result.reason
    assert len([line for line in calls(folder, "mlx5_0 ") if line.endswith("127.0.0.1")]) <= 3
