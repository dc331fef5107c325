"""What was measured, row by row, and how it is timed and shown."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable
from typing import NamedTuple

import torch

ROUNDS = 3


class Row(NamedTuple):
    """One line of the table. `share` is of the ceiling or the bare rate, 0 to 1; `note` is for people."""

    section: str
    name: str
    value: float | None = None
    unit: str = ""
    share: float | None = None
    note: str = ""


class Scale(NamedTuple):
    """How much is done: on a card, or interpreted on the processor to show that it works."""

    device: str
    probe_bytes: int
    take_bytes: int | None
    size: int
    repeats: int
    opinion_tile: int
    second_type: str
    heat_s: float


CARD = Scale("cuda", 16 << 30, None, 8192, 60, 128, "bf16", 2.0)
# Triton's interpreter has no bf16 products; all else is the same code.
TINY = Scale("cpu", 8 << 10, 20 << 10, 64, 3, 16, "fp16", 0.0)


def wait_for_device(device: str) -> None:
    """Wait until the device has done all it was asked."""
    if device.startswith("cuda"):
        torch.cuda.synchronize(device)


def measure_seconds(device: str, call: Callable[[], object], rounds: int = ROUNDS) -> float:
    """The median of `rounds` runs to the end, after one that is not counted (it may compile)."""
    taken = []
    for _ in range(rounds + 1):
        wait_for_device(device)
        began = time.perf_counter()
        call()
        wait_for_device(device)
        taken.append(time.perf_counter() - began)
    return statistics.median(taken[1:])


def render_rows(rows: list[Row]) -> str:
    """The one table."""
    lines = [f"{'':<12} {'':<42} {'measured':>10} {'':<8} {'share':>7}  "]
    last = ""
    for row in rows:
        section, last = ("" if row.section == last else row.section), row.section
        value = "" if row.value is None else f"{row.value:10.3g}" if abs(row.value) < 100 else f"{row.value:10.0f}"
        share = "" if row.share is None else f"{row.share:7.1%}"
        lines.append(f"{section:<12} {row.name:<42} {value:>10} {row.unit:<8} {share:>7}  {row.note}".rstrip())
    return "\n".join(lines)
