"""Turns NVML samples into findings: presence, liveness, and every check over the GPUs' values."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence

from healthd.checks import gpu_presence_checks, nvml_liveness_checks
from healthd.checks.gpu_count_checks import GpuCountCheck
from healthd.collectors.pcie import PcieSample
from healthd.findings.facts import Clear, Moment, make_check_failure
from healthd.findings.finding_ledger import FindingLedger
from healthd.findings.gpu_state import GpuState, is_gpu_busy, merge_reading
from healthd.gpu_monitoring.gpu_check_registry import GpuCheckByProduct
from healthd.gpu_monitoring.simulated_faults import SimulatedFault
from healthd.gpu_monitoring.simulated_gpus import SimulatedGpus
from healthd.samples.nvml import GpuConstants, GpuReading, Inventory, NvmlHang, NvmlUnavailable, Sweep
from vocabulary.identity import ComponentKind
from vocabulary.messages.wire import Gpu

WORKING_PERCENT = 95.0  # of the time: a GPU that waits in a collective works all the time
_UNTIL_READ = frozenset({"nvml/slow", "nvml/hang", "gpu_presence/lost"})  # levels that a reading of their GPU clears


class GpuMonitor:
    """`expected` are the GPUs this node should have, `present` those enumerated; `states` is by index.

    `trouble` is why nothing is read now; `hanging`: because the driver does not answer. `pretences` are the simulated
    faults.
    """

    def __init__(
        self,
        ledger: FindingLedger,
        expected: Iterable[Gpu],
        checks: Mapping[str, GpuCheckByProduct],
        pretended: SimulatedGpus,
        counts: GpuCountCheck | None = None,
    ) -> None:
        self._ledger = ledger
        self._checks = dict(checks)
        self._pretended = pretended
        self._counts = counts
        self._renewal_wanted = False
        self.pretences: Sequence[SimulatedFault] = ()
        self.expected = tuple(expected)
        self.present: tuple[Gpu, ...] = ()
        self._constants: dict[int, GpuConstants] = {}
        self.inventory: Inventory | None = None
        self.states: dict[int, GpuState] = {}
        self.swept_at: float | None = None  # monotonic
        self.sweep_seconds: float | None = None
        self.sweeps = self.errors = self.hangs = 0
        self._first_hang: NvmlHang | None = None  # since the last complete sweep
        self._hung: dict[int, NvmlHang] = {}  # the first hang on each GPU that no sweep has covered since
        self.trouble, self.hanging = "", False
        self._name(self.expected)

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """The GPUs of this node, by index: present ones, and those that should be."""
        return tuple(gpu for _, gpu in sorted(self._by_index.items()))

    @property
    def by_pci(self) -> Mapping[str, Gpu]:
        """The same, by PCI address."""
        return self._by_pci

    @property
    def by_index(self) -> Mapping[int, Gpu]:
        """The same, by index."""
        return self._by_index

    def take(self, sample: Inventory | Sweep | NvmlHang | NvmlUnavailable, now: Moment) -> None:
        """Process a message of the NVML child, or its absence."""
        if isinstance(sample, Sweep):
            self._take_sweep(sample, now)
        elif isinstance(sample, Inventory):
            self._take_inventory(sample, now)
        elif isinstance(sample, NvmlHang):
            self._take_hang(sample)
        else:
            self._forget(sample.reason)
            self._ledger.apply([nvml_liveness_checks.judge_unavailable(sample)])

    def accept_present(self, at: float) -> None:
        """Expect the present GPUs from now on, because a preflight passed with them.

        Findings that only a reading of an absent GPU could clear are cleared at `at` (UTC seconds): it is not read
        again. Does nothing while a present GPU is unidentified, or while fewer are present than configured.
        """
        inventory = self.inventory
        if inventory is None or (self._counts and self._counts.falls_short(inventory)):
            return
        if inventory.count == len(self.present) > 0:
            self.expected = self.present
            self._name(self.present)
            self._hung.clear()
            self._ledger.apply(list(self._clear_absent(at)))

    def _clear_absent(self, at: float) -> Iterator[Clear]:
        """Clear absent GPUs, also those without a known address, as all present ones have theirs."""
        places, by = {gpu.pci for gpu in self.present}, "a preflight passed without this GPU"
        for finding in self._ledger.active:
            component = finding.component
            if component.kind is ComponentKind.GPU and component.pci not in places and finding.kind in _UNTIL_READ:
                yield Clear(check=finding.check, code=finding.code, component=component, at=at, by=by)

    def take_bus(self, bus: PcieSample, now: Moment) -> None:
        """Compare the devices on the PCI bus with the GPUs that NVML enumerated."""
        if self._counts is None:
            return
        unread = [gpu.pci for index in self.left_out if (gpu := self._by_index.get(index))]
        judged = self._counts.judge_bus(bus.hops, self.inventory, unread, now.wall)
        self._ledger.apply(judged.facts)
        self._renewal_wanted |= judged.renew

    @property
    def processes(self) -> dict[int, bool] | None:
        """The pids that hold a GPU, and whether it is busy, as last read; None while nothing is known of any GPU."""
        found: dict[int, bool] | None = None
        for state in self.states.values():
            if state.latest.processes is not None:
                busy = is_gpu_busy(state, WORKING_PERCENT) is True
                found = {**(found or {}), **{process.pid: busy for process in state.latest.processes}}
        return found

    def take_renewal(self) -> bool:
        """Return whether the driver must enumerate its GPUs again, since the last call."""
        wanted, self._renewal_wanted = self._renewal_wanted, False
        return wanted

    @property
    def left_out(self) -> tuple[int, ...]:
        """Indices of the GPUs that are not read because the driver hangs on them: their state is unknown."""
        return self.inventory.left_out if self.inventory else ()

    def _take_hang(self, hang: NvmlHang) -> None:
        first = hang
        if not hang.injected:
            began = self._first_hang if hang.index is None else self._hung.get(hang.index)
            first = began or hang
            if hang.index is not None:
                self._hung[hang.index] = first
        if not hang.trial:
            self._forget(f"{hang.call} has not answered for {hang.seconds:.0f} s", hanging=True)
            self.hangs += 1
            self._first_hang = self._first_hang or (None if hang.injected else hang)
        self._ledger.apply([nvml_liveness_checks.judge_hang(hang, self._by_index, first)])

    def _forget(self, trouble: str, *, hanging: bool = False) -> None:
        """Discard readings that no longer describe the present."""
        self.swept_at, self.states = None, {}
        self.trouble, self.hanging = trouble, hanging

    def _take_sweep(self, sweep: Sweep, now: Moment) -> None:
        self.swept_at, self.sweep_seconds = now.monotonic, sweep.seconds
        self.sweeps += 1
        self._first_hang = None
        self.trouble, self.hanging = "", False
        for reading in sweep.readings:
            self._hung.pop(reading.index, None)
            self.errors += len(reading.errors)
            gpu = self._by_index.get(reading.index)
            if gpu is not None:
                before = self.states.get(reading.index)
                latest = merge_reading(before.latest if before else None, reading)
                constants = self._constants.get(reading.index) or GpuConstants(index=reading.index)
                self.states[reading.index] = GpuState(gpu, constants, latest, reading)
        self._ledger.apply(nvml_liveness_checks.judge_completed_sweep(sweep, self._by_index))
        self._ledger.apply(gpu_presence_checks.judge_lost_gpus(sweep, self._by_index))
        self._judge(now)

    def _judge(self, now: Moment) -> None:
        states = [state for _, state in sorted((self._unread() | self.states).items())]
        for name, check in self._checks.items():
            if not check.may_differ(states, now):
                continue
            try:
                facts = check.judge(states, now)
            except Exception as error:  # noqa: BLE001 - one check's mistake must not blind the others
                self._ledger.apply([make_check_failure(name, error, now.wall)])
                continue
            self._ledger.apply_levels(name, facts, now.wall, "NVML: no longer so")
        self._pretended.judge(states, self.pretences, now)

    def _unread(self) -> dict[int, GpuState]:
        """Return the left-out GPUs: their earlier findings neither hold nor have ended."""
        unread = {}
        for index in self.left_out:
            if gpu := self._by_index.get(index):
                nothing = GpuReading(index=index)
                unread[index] = GpuState(gpu, GpuConstants(index=index), nothing, nothing)
        return unread

    def _take_inventory(self, inventory: Inventory, now: Moment) -> None:
        if self.inventory is not None and self.inventory.count != inventory.count:
            self._hung.clear()  # an index may mean another GPU now
        self.inventory = inventory
        self.present = inventory.gpus
        self._constants = {constants.index: constants for constants in inventory.constants}
        self.states = {}
        places = {gpu.pci for gpu in inventory.gpus}
        self._ledger.apply(nvml_liveness_checks.judge_renamed_gpus(inventory, now.wall))
        if self._counts:
            self._ledger.apply(self._counts.judge_inventory(inventory, now.wall))
        self._ledger.apply(gpu_presence_checks.judge_gpu_inventory(inventory, self.expected, now.wall))
        self.expected = tuple(gpu for gpu in self.expected if gpu.pci not in places) + inventory.gpus
        self._name(self.expected)
        self._ledger.name_gpus(inventory.gpus)

    def _name(self, gpus: tuple[Gpu, ...]) -> None:
        """Name GPUs by index; after a shift the present ones, which come last, win."""
        self._by_index = {gpu.index: gpu for gpu in gpus}
        self._by_pci = {gpu.pci: gpu for gpu in gpus}
