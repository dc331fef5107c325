from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch.distributed as dist

from preflight.check_context import Context, Device
from preflight.checks import collectives, nccl_choices
from preflight.checks.collectives import _Collectives
from preflight.checks.nccl_choices import (
    LL128,
    NVLS,
    RING,
    SIMPLE,
    NcclChoice,
    choose_for_devices,
    list_choices,
    open_group,
)
from preflight.results import Outcome, Result

pytestmark = pytest.mark.torch

CPU = Device(name="cpu:0", torch_name="cpu", index=0, label="host memory", memory_bytes=1 << 20)


@pytest.mark.parametrize(
    ("level", "ranks", "fabric", "multicast", "chosen"),
    [
        ("gate", 8, True, True, ()),
        ("standard", 8, True, True, (RING, NVLS)),
        ("standard", 2, True, True, (RING,)),
        ("standard", 8, True, False, (RING,)),
        ("standard", 8, False, True, (RING,)),
        ("burn-in", 8, True, True, (RING, NVLS, SIMPLE, LL128)),
        ("burn-in", 8, False, False, (RING, SIMPLE)),
    ],
)
def test_what_runs_on_purpose_depends_on_level_and_fabric(
    level: str, ranks: int, *, fabric: bool, multicast: bool, chosen: tuple[NcclChoice, ...]
) -> None:
    assert list_choices(level, ranks, fabric=fabric, multicast=multicast) == chosen


def test_the_host_has_no_nccl() -> None:
    assert choose_for_devices("burn-in", 8, CPU) == ()


@pytest.mark.parametrize(("others", "chosen"), [(0.0, (RING, NVLS)), (1.0, (RING,))])
def test_all_devices_run_the_same(
    others: float, chosen: tuple[NcclChoice, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    gpu = Device(name="cuda:0", torch_name="cuda:0", index=0, label="GPU 0", uuid="GPU-fake-0000")
    monkeypatch.setattr(nccl_choices, "_has_fabric", lambda _: True)
    monkeypatch.setattr(nccl_choices, "_has_multicast", lambda _: True)
    monkeypatch.setattr(nccl_choices, "reduce_longest_seconds", lambda _, mine: max(mine, others))
    assert choose_for_devices("standard", 8, gpu) == chosen


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[None]:
    """A process group of one rank."""
    dist.init_process_group("gloo", store=dist.FileStore(str(tmp_path / "store"), 1), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def run(monkeypatch: pytest.MonkeyPatch, *choices: NcclChoice) -> Result:
    monkeypatch.setattr(collectives, "choose_for_devices", lambda *_: choices)
    context = Context(device=CPU, devices=(CPU,), level="standard", seconds=0.1, fault="", note=lambda _: None)
    return _Collectives(context, CPU).run()


@pytest.mark.usefixtures("alone")
def test_each_choice_is_made_in_a_group_of_its_own_and_named_in_the_setting(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[int, str | None]] = []
    perform = dist.all_reduce

    def record(values: Any, *, group: object = None, **options: object) -> object:
        if group is not None:
            seen.append((values.numel(), os.environ.get("NCCL_ALGO")))
        return perform(values, group=group, **options)

    monkeypatch.setattr(dist, "all_reduce", record)
    result = run(monkeypatch, RING, SIMPLE)
    assert result.outcome is Outcome.PASS, result.reason
    settings = [figure.setting for figure in result.figures if figure.name == "bus_rate"]
    assert [setting.rpartition(", ")[2] for setting in settings[-2:]] == ["ring", "simple"]
    assert {made for size, made in seen if size > 1} == {made for _, made in seen} == {"Ring", None}
    assert os.environ.keys().isdisjoint({"NCCL_ALGO", "NCCL_PROTO"})


@pytest.mark.usefixtures("alone")
def test_a_choice_that_nccl_refuses_is_inconclusive(monkeypatch: pytest.MonkeyPatch) -> None:
    perform = dist.all_reduce

    def refuse(values: object, *, group: object = None, **options: object) -> object:
        if group is not None:
            raise RuntimeError("NCCL error in: x.cpp:275, invalid usage, NCCL version 2.27.3")
        return perform(values, **options)

    monkeypatch.setattr(dist, "all_reduce", refuse)
    result = run(monkeypatch, NVLS)
    assert result.outcome is Outcome.ERROR
    assert result.reason.startswith("NCCL does not run NVLS here: NCCL error in: x.cpp:275, invalid usage")
    assert "NCCL_ALGO" not in os.environ
    monkeypatch.setattr(nccl_choices, "_REFUSALS", ())
    with pytest.raises(RuntimeError, match="invalid usage"):  # any other error is judged as such
        run(monkeypatch, NVLS)


@pytest.mark.usefixtures("alone")
def test_a_group_ends_with_its_use() -> None:
    with open_group(RING) as group:
        assert dist.get_world_size(group) == 1
    with pytest.raises(KeyError):
        dist.get_process_group_ranks(group)
