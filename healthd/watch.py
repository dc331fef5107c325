"""Samples in, findings out: every check of this node, wired by kind of sample. Pure but for the state it keeps."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from healthd.checks import gpu_presence, kernel_log, nvml_liveness, row_remap
from healthd.checks.beacons import BeaconCheck
from healthd.checks.xid import XidCheck
from healthd.ledger import Ledger
from healthd.samples.beacons import Beacons
from healthd.samples.kernel import KernelGap, KernelRecord
from healthd.samples.nvml import GpuReading, Inventory, MemoryReading, NvmlHang, NvmlSample, NvmlUnavailable, Sweep
from healthd.status import Counters
from vocabulary.wire import Gpu, RankStatus


class Watch:
    """This node as the samples so far show it. `expected` are the GPUs it should have."""

    def __init__(self, ledger: Ledger, xids: XidCheck, expected: Iterable[Gpu]) -> None:
        self.ledger = ledger
        self._xids = xids
        self._beacons = BeaconCheck({f.component.name for f in ledger.active if f.kind == "beacon/corrupt"})
        self.expected = tuple(expected)
        self.present: tuple[Gpu, ...] = ()
        self._name(self.expected)
        self.readings: tuple[GpuReading, ...] = ()
        self.memory: dict[int, MemoryReading] = {}
        self.swept_at: float | None = None
        self.sweep_seconds: float | None = None
        self.ranks: tuple[RankStatus, ...] = ()
        self.counters = Counters()

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of this node, by index: those present, and those that should be."""
        return tuple(gpu for _, gpu in sorted(self._by_index.items()))

    def take_kernel(self, records: Iterable[KernelRecord], gaps: Iterable[KernelGap]) -> bool:
        """New kernel records. True if one of them was evidence about a GPU."""
        evidence = False
        count = 0
        for record in records:
            count += 1
            fact = self._xids.judge(record, self._by_pci)
            if fact is not None:
                evidence = True
                self.ledger.apply([fact])
        self.ledger.apply(kernel_log.judge_gap(gap) for gap in gaps)
        self._count(kernel_records=count)
        return evidence

    def take_garbage(self, problems: Iterable[str], at: float) -> None:
        """Bytes from the kernel log that are no record."""
        self.ledger.apply(kernel_log.judge_garbage(problem, at) for problem in problems)

    def take_nvml(self, sample: NvmlSample, at: float) -> None:
        """A message of the NVML child, or word of its silence."""
        if isinstance(sample, Sweep):
            self._take_sweep(sample)
        elif isinstance(sample, Inventory):
            self._take_inventory(sample, at)
        elif isinstance(sample, NvmlHang):
            self.swept_at = None
            self.readings = ()
            self._count(nvml_hangs=1)
            self.ledger.apply([nvml_liveness.judge_hang(sample, self._by_index)])
        elif isinstance(sample, NvmlUnavailable):
            self.swept_at = None
            self.readings = ()
            self.ledger.apply([nvml_liveness.judge_unavailable(sample)])

    def take_beacons(self, sample: Beacons) -> bool:
        """The trainer ranks. True if ranks came or went."""
        changed = {_who(rank) for rank in self.ranks} != {_who(rank) for rank in sample.ranks}
        self.ranks = sample.ranks
        self.ledger.apply(self._beacons.judge(sample))
        return changed

    def accept_present(self) -> None:
        """A preflight passed with the GPUs that are there now: these are expected from now on."""
        if self.present:
            self.expected = self.present
            self._name(self.present)

    def _take_sweep(self, sweep: Sweep) -> None:
        self.swept_at, self.sweep_seconds, self.readings = sweep.at, sweep.seconds, sweep.readings
        self.memory |= {r.index: r.memory for r in sweep.readings if r.memory is not None}
        self._count(sweeps=1, sweep_errors=sum(len(reading.errors) for reading in sweep.readings))
        self.ledger.apply(nvml_liveness.judge_sweep(sweep, self._by_index))
        self.ledger.apply(gpu_presence.judge_sweep(sweep, self._by_index))
        self.ledger.apply(row_remap.judge(sweep, self._by_index))

    def _take_inventory(self, inventory: Inventory, at: float) -> None:
        self.present = inventory.gpus
        places = {gpu.pci for gpu in inventory.gpus}
        self.ledger.apply(gpu_presence.judge_inventory(inventory, self.expected, at))
        self.expected = tuple(gpu for gpu in self.expected if gpu.pci not in places) + inventory.gpus
        self._name(self.expected)
        self.ledger.name_gpus(inventory.gpus)

    def _name(self, gpus: tuple[Gpu, ...]) -> None:
        """Indices shift when a GPU is missing: the present ones, which come last, win."""
        self._by_index = {gpu.index: gpu for gpu in gpus}
        self._by_pci = {gpu.pci: gpu for gpu in gpus}

    def _count(self, **more: int) -> None:
        now = {name: getattr(self.counters, name) + count for name, count in more.items()}
        self.counters = msgspec.structs.replace(self.counters, **now)


def _who(rank: RankStatus) -> tuple[str, int, int, bool]:
    return rank.job, rank.attempt, rank.rank, rank.alive
