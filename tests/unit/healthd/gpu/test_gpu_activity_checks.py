from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from healthd.findings.gpu_state import GpuState
from healthd.samples.nvml import Process

Gpu = Callable[..., GpuState]
USED = (Process(4711),)
WAITS = {"gpu_percent": 100, "memory_percent": 1, "processes": USED}
IDLE = {"gpu_percent": 0, "memory_percent": 0, "processes": USED}


def raised(node: Callable[..., Any], gpu: Gpu, *readings: dict[str, Any], seconds: int = 60) -> set[str]:
    judge = node("gpu_activity")
    states = [gpu(index, **reading) for index, reading in enumerate(readings)]
    judge.raised(0, *states)
    found: set[str] = judge.raised(seconds, *states)
    return found


def test_the_one_idle_gpu_that_all_others_wait_for(node: Callable[..., Any], gpu: Gpu) -> None:
    assert raised(node, gpu, WAITS, IDLE, WAITS, WAITS) == {"waited_for@1"}
    assert raised(node, gpu, WAITS, IDLE, WAITS, WAITS, seconds=50) == set()


@pytest.mark.parametrize(
    "others",
    [
        (WAITS, WAITS),  # too few
        (WAITS, WAITS, IDLE),  # two idle ones: a job that loads data
        (WAITS, WAITS, WAITS | {"memory_percent": 40}),  # one computes
        (WAITS, WAITS, WAITS | {"gpu_percent": 80}),
        (WAITS, WAITS, WAITS | {"processes": ()}),  # unused
        (WAITS, WAITS, WAITS | {"memory_percent": None}),  # not read
    ],
)
def test_what_shows_no_hang(node: Callable[..., Any], gpu: Gpu, others: tuple[dict[str, Any], ...]) -> None:
    assert raised(node, gpu, IDLE, *others) == set()


def test_an_idle_gpu_without_a_process_is_not_waited_for(node: Callable[..., Any], gpu: Gpu) -> None:
    assert raised(node, gpu, IDLE | {"processes": ()}, WAITS, WAITS, WAITS, WAITS) == set()


def test_it_ends_when_the_gpu_works_again(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("gpu_activity")
    hangs = [gpu(index, **(IDLE if index == 0 else WAITS)) for index in range(4)]
    works = [gpu(index, **(WAITS | {"memory_percent": 40})) for index in range(4)]
    judge.raised(0, *hangs)
    assert judge.raised(60, *hangs) == {"waited_for@0"}
    assert judge.unknown(61, *works) == {"waited_for@0"}  # so it stays
    assert "waited_for@0" not in judge.say(95, *works)
