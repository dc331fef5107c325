from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from preflight.execution.device_assignment import DeviceAssignments, assign_devices, select_visible_gpus
from preflight.execution.gpu_inventory import describe_process
from preflight.results import Outcome
from preflight.worker_messages import GpuInfo, GpuInventory, GpuProcess, MigInstance

GIB = 1 << 30


def gpu(index: int, **changes: object) -> GpuInfo:
    facts: dict[str, object] = {"uuid": f"GPU-{index}aa", "product": "NVIDIA H200", "memory_total": 141 * GIB}
    return GpuInfo(index=index, **{"memory_free": 140 * GIB, **facts, **changes})  # type: ignore[arg-type] # test facts


def seen(*gpus: GpuInfo, on_bus: int | None = None, failure: str = "", misconfigured: bool = False) -> GpuInventory:
    here = len(gpus) if on_bus is None else on_bus
    return GpuInventory(on_bus=here, gpus=gpus, failure=failure, misconfigured=misconfigured)


def why(found: DeviceAssignments) -> tuple[Outcome, str, bool]:
    assert not found.seats
    (nobody,) = found.unseated
    assert nobody.name == ""
    return nobody.outcome, nobody.reason, nobody.misconfigured


def test_a_node_without_gpus_stands_for_two_devices_of_half_its_threads() -> None:
    found = assign_devices(seen(), None, 8)
    assert [(s.name, s.torch_name, s.threads) for s in found.seats] == [("cpu:0", "cpu", 4), ("cpu:1", "cpu", 4)]
    assert assign_devices(seen(), None, 1).seats[0].threads == 1


def test_gpus_that_are_only_pretended_are_not_computed_on() -> None:
    assert assign_devices(seen(gpu(0), on_bus=0), None, 2).seats[0].name == "cpu:0"


def test_each_gpu_has_a_process_that_sees_all_of_them() -> None:
    found = assign_devices(seen(gpu(0), gpu(1)), None, 8)
    assert [(s.name, s.torch_name, s.visible) for s in found.seats] == [
        ("cuda:0", "cuda:0", "GPU-0aa,GPU-1aa"),
        ("cuda:1", "cuda:1", "GPU-0aa,GPU-1aa"),
    ]
    assert [(s.index, s.uuid, s.label) for s in found.seats][1] == (1, "GPU-1aa", "GPU 1, NVIDIA H200")


def test_a_lost_gpu_is_hidden_from_cuda_and_the_others_keep_their_names() -> None:
    found = assign_devices(seen(gpu(0), GpuInfo(index=1, unread="the driver has lost the GPU"), gpu(2)), None, 8)
    assert [(s.name, s.torch_name, s.visible) for s in found.seats] == [
        ("cuda:0", "cuda:0", "GPU-0aa,GPU-2aa"),
        ("cuda:2", "cuda:1", "GPU-0aa,GPU-2aa"),
    ]
    assert [(u.name, u.outcome, u.reason) for u in found.unseated] == [
        ("cuda:1", Outcome.NOT_RUN, "the driver has lost the GPU")
    ]


def test_nobody_is_tested_where_somebody_computes() -> None:
    busy = gpu(1, processes=(GpuProcess(4711, "anna", "python"), GpuProcess(4712)))
    outcome, reason, misconfigured = why(assign_devices(seen(gpu(0), busy), None, 8))
    assert (outcome, misconfigured) == (Outcome.NOT_RUN, True)
    assert "GPU 1 is busy with process 4711 (python of anna), process 4712 (not visible from here)" in reason
    assert "GPU 1 is busy" in why(assign_devices(seen(gpu(0), busy, on_bus=0), None, 8))[1]
    assert len(assign_devices(seen(gpu(0), busy), "0", 8).seats) == 1  # it is not ours to use, and not ours to look at


def test_nobody_is_tested_where_most_of_the_memory_is_held() -> None:
    outcome, reason, misconfigured = why(assign_devices(seen(gpu(0, memory_free=3 * GIB)), None, 8))
    assert (outcome, misconfigured) == (Outcome.NOT_RUN, True)
    assert "only 3072 of 144384 MiB are free" in reason
    assert assign_devices(seen(gpu(0, memory_total=0, memory_free=0)), None, 8).seats  # it shares the host's


@pytest.mark.parametrize(
    ("inventory", "visible", "outcome", "says", "misconfigured"),
    [
        (seen(on_bus=8, failure="no NVML library"), None, Outcome.NOT_RUN, "no NVML library", False),
        (seen(failure="names a library", misconfigured=True), None, Outcome.NOT_RUN, "names a library", True),
        (seen(on_bus=8), None, Outcome.ERROR, "8 GPUs on the PCI bus, but the driver shows none", False),
        (seen(gpu(0)), "", Outcome.NOT_RUN, "CUDA_VISIBLE_DEVICES= hides all 1 GPUs; unset it", True),
        (seen(gpu(0)), "7", Outcome.NOT_RUN, "CUDA_VISIBLE_DEVICES=7 hides all 1 GPUs", True),
    ],
)
def test_gpus_that_nobody_can_compute_on_never_make_a_host_of_the_node(
    inventory: GpuInventory, visible: str | None, outcome: Outcome, says: str, *, misconfigured: bool
) -> None:
    found = why(assign_devices(inventory, visible, 8))
    assert (found[0], found[2]) == (outcome, misconfigured)
    assert says in found[1]


def test_a_driver_that_fails_where_no_gpu_is_leaves_the_host() -> None:
    assert len(assign_devices(seen(failure="the driver does not start"), None, 8).seats) == 2


def test_mig_instances_are_devices_that_see_only_themselves() -> None:
    instances = (MigInstance("MIG-a", "NVIDIA H200 MIG 1g.18gb"), MigInstance("MIG-b", "NVIDIA H200 MIG 1g.18gb"))
    found = assign_devices(seen(gpu(0), gpu(1, mig=True, instances=instances)), None, 8)
    assert [(s.name, s.torch_name, s.visible, s.mig) for s in found.seats] == [
        ("cuda:0", "cuda:0", "GPU-0aa", False),
        ("cuda:1/mig0", "cuda:0", "MIG-a", True),
        ("cuda:1/mig1", "cuda:0", "MIG-b", True),
    ]
    assert found.seats[1].product == "NVIDIA H200 MIG 1g.18gb"
    assert [s.index for s in found.seats] == [0, 1, 2]
    assert [s.visible for s in assign_devices(seen(gpu(1, mig=True, instances=instances)), "MIG-b", 8).seats] == [
        "MIG-b"
    ]


def test_mig_without_an_instance_is_for_a_person_to_put_right() -> None:
    found = assign_devices(seen(gpu(0, mig=True)), None, 8)
    assert (found.seats, found.unseated[0].misconfigured) == ((), True)


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2]),
        ("", []),
        ("2,0", [2, 0]),
        (" 1 , 2", [1, 2]),
        ("GPU-1aa", [1]),
        ("GPU-1", [1]),
        ("0,-1,2", [0]),
        ("0,9,2", [0]),
        ("1,1", [1]),
        ("NoDevFiles", []),
    ],
)
def test_visible_devices_are_read_as_cuda_reads_them(visible: str | None, indices: list[int]) -> None:
    assert [g.index for g in select_visible_gpus([gpu(0), gpu(1), gpu(2)], visible)] == indices


@pytest.mark.parametrize(
    ("visible", "left_out"),
    [
        (None, ""),
        ("2,1,0", ""),
        ("1", "CUDA_VISIBLE_DEVICES=1 leaves out GPU 0, GPU 2: the result does not cover the whole node"),
        ("0,1,MIG-b", "CUDA_VISIBLE_DEVICES=0,1,MIG-b leaves out GPU 2: the result does not cover the whole node"),
    ],
)
def test_gpus_that_somebody_hid_are_named(visible: str | None, left_out: str) -> None:
    instances = (MigInstance("MIG-a", "NVIDIA H200 MIG 1g.18gb"), MigInstance("MIG-b", "NVIDIA H200 MIG 1g.18gb"))
    assert assign_devices(seen(gpu(0), gpu(1), gpu(2, mig=True, instances=instances)), visible, 8).left_out == left_out


@given(st.permutations(range(8)), st.integers(1, 8))
def test_any_choice_of_gpus_is_seated_in_its_order_without_gaps(order: list[int], count: int) -> None:
    chosen = order[:count]
    found = assign_devices(seen(*map(gpu, range(8))), ",".join(map(str, chosen)), 8)
    assert [s.uuid for s in found.seats] == [f"GPU-{index}aa" for index in chosen]
    assert [s.index for s in found.seats] == list(range(count))
    for seat in found.seats:
        assert seat.visible.split(",")[int(seat.torch_name.partition(":")[2])] == seat.uuid


def test_a_process_is_named_as_far_as_it_can_be_seen(tmp_path: Path) -> None:
    assert describe_process(os.getpid()).user
    assert describe_process(1, tmp_path) == GpuProcess(1)
