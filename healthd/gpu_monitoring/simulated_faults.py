"""Simulated faults: what a faulty GPU would report. Pure.

Each is a file in `STATE_DIR/pretended/`, written by `healthctl inject`. The checks then judge the simulated readings
beside the real ones, and their findings are marked as injected, up to the audit log.
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

    `values` replace the reading's, `added` is added to its counters, `bits` to its masks, and `links_down` are inactive
    NVLinks.
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
    """Return all GPUs, with simulated readings where there is a fault."""
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
