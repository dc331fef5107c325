"""Faults that somebody wants to see without having them: what a GPU would read if it were so. Pure.

Each is a file in `STATE_DIR/pretended/`, written by `healthctl inject`. The checks then judge the pretended readings
beside the real ones, and whatever they say of them is marked as injected, all the way to the audit log.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import msgspec
from msgspec.structs import replace

from healthd.findings.gpu_state import GpuState
from healthd.samples.nvml import GpuReading, Link

FOLDER = "pretended"


class SimulatedFault(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One fault of one GPU, until `until` (UTC seconds).

    `values` stand in the place of the reading's, `added` come on top of its counters, `bits` on top of its masks, and
    `links_down` are NVLinks that are not active.
    """

    gpu: int
    until: float
    values: dict[str, int | bool] = {}
    added: dict[str, int] = {}
    bits: dict[str, int] = {}
    links_down: tuple[int, ...] = ()

    def __post_init__(self) -> None:
        for name in (*self.values, *self.added, *self.bits):
            if name not in _FIELDS:
                raise ValueError(f"a GPU's reading has no {name!r}")


class SimulatedHang(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The NVML child (`source` "nvml") or the source child at this source really blocks: once, at once."""

    source: str
    gpu: int | None = None


def simulate_faults(states: Sequence[GpuState], pretences: Iterable[SimulatedFault]) -> list[GpuState]:
    """All GPUs, those with a pretended fault as they would read with it."""
    by_index = {state.gpu.index: state for state in states}
    for pretence in pretences:
        state = by_index.get(pretence.gpu)
        if state is not None:
            latest, read = _apply_fault(state.latest, pretence), _apply_fault(state.read, pretence)
            by_index[pretence.gpu] = replace(state, latest=latest, read=read)
    return list(by_index.values())


def _apply_fault(reading: GpuReading, pretence: SimulatedFault) -> GpuReading:
    changes: dict[str, object] = dict(pretence.values)
    changes |= {name: (getattr(reading, name) or 0) + more for name, more in pretence.added.items()}
    changes |= {name: (getattr(reading, name) or 0) | more for name, more in pretence.bits.items()}
    if pretence.links_down:
        changes["links"] = _disable_links({link.link: link for link in reading.links or ()}, pretence.links_down)
    return replace(reading, **changes)


def _disable_links(known: Mapping[int, Link], down: Iterable[int]) -> tuple[Link, ...]:
    changed = {link: replace(known.get(link, Link(link)), active=False) for link in down}
    return tuple(link for _, link in sorted({**known, **changed}.items()))


_FIELDS = frozenset(GpuReading.__struct_fields__) - {"index", "errors", "links", "processes", "remap_histogram"}
