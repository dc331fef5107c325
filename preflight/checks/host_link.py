"""Link between host and device: every byte compared, bandwidth in each direction and in both at once, link width.

The devices of a node share memory, root ports and switches. So each first measures alone, in turn; then all copy at the
same time, and only the data is verified. Host buffers are allocated near the device. Without a GPU, host memory is copied.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import msgspec
import torch

from preflight.check_context import Context, Device
from preflight.checks.torch_devices import select_device, synchronize_device
from preflight.host import gpu_pcie_link
from preflight.host.gpu_pcie_link import PcieLink
from preflight.host.measurement_turns import TurnQueue
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError
from preflight.host.significant_digits import round_to_four_digits
from preflight.results import Evidence, Figure, Location, Outcome, Result
from vocabulary.hardware.machine_files import Machine

TEST = "host_link"
GPU_BYTES, HOST_BYTES = 256 << 20, 32 << 20
ALONE_SHARE = 0.6  # of the test's time, divided among the devices
ALONE_S_MAX = 0.5  # per direction: more does not improve the rate
PATIENCE_S = 18.0  # beyond the test's time, for waiting: a process that waits for a hung one must not count as hung
DRIVER_PATIENCE_S = 3.0
SLOW_FACTOR = 10
LISTED_MAX = 8
_POISON = 0xA5
_LOOK_EVERY_S = 0.02
_clock = time.perf_counter


def check_host_link(context: Context, machine: Machine | None = None) -> Iterator[Result]:
    """One result for this device."""
    device = context.device
    if device is None:
        raise ValueError(f"{TEST} tests a device and needs one")
    machine = machine or Machine()
    with run_near_device(machine, device, context) as place, TurnQueue(device.index, len(context.devices)) as turns:
        yield _CopyRun(context, device, place, turns).result()


class DevicePlace:
    """A device's location: how to read its link, and remarks."""

    def __init__(self, machine: Machine, device: Device, fault: str) -> None:
        self._machine, self._fault = machine, fault
        self.remarks: list[str] = []
        self._driver: NvmlDriver | None = None
        self._gpu: Any = None
        self._address = ""
        if device.on_host:
            return
        try:
            self._driver = NvmlDriver()
            self._gpu = self._driver.gpu(device.uuid)
        except NoDriverError as error:
            self.remarks.append(f"width and errors of the link are unknown: {error}")
        if self._driver is not None and self._gpu is not None:
            self._address = self._driver.address(self._gpu)

    def link(self) -> PcieLink:
        """The current link, with the injected fault."""
        link = (
            gpu_pcie_link.read_pcie_link(self._machine, self._driver, self._gpu, self._address)
            if self._address
            else PcieLink()
        )
        if self._fault == "narrow":
            full = link.width_max or 16
            return msgspec.structs.replace(link, width=full // 2, width_max=full)
        return link


@contextmanager
def run_near_device(machine: Machine, device: Device, context: Context) -> Iterator[DevicePlace]:
    """Run on a CPU near the device, so that buffers are allocated there; restore the affinity afterwards."""
    context.note("finding the link")
    place = DevicePlace(machine, device, context.fault)
    before = os.sched_getaffinity(0)
    cpus = before & set(place.link().cpus)
    if place.link().cpus and not cpus:
        place.remarks.append("no CPU near the device is allowed for this process: measured from a farther NUMA node")
    if cpus:
        os.sched_setaffinity(0, cpus)
    try:
        yield place
    finally:
        os.sched_setaffinity(0, before)


class CorruptTransfer(msgspec.Struct, frozen=True):
    """Data that arrived modified: direction, number of bytes, first positions."""

    way: str
    count: int
    first: tuple[int, ...]


class _CopyRun:
    """One device's copies."""

    def __init__(self, context: Context, device: Device, place: DevicePlace, turns: TurnQueue) -> None:
        self._context, self._device, self._place, self._turns = context, device, place, turns
        self._began = _clock()
        self._size = HOST_BYTES if device.on_host else GPU_BYTES
        self._rates: dict[str, float] = {}
        self._busy = PcieLink()

    def result(self) -> Result:
        """Measure alone, then copy with the others, and build the result."""
        before = self._place.link()
        self._context.note(f"allocating two buffers of {self._size >> 20} MiB on each side")
        self._buffers()
        wrong = self._round_trip()
        met = self._turns.gather(self._patience_s())
        if not wrong:
            with self._turns.turn(self._patience_s()) as had, self._looking():
                wrong = self._measure()
            met = had and met
        met = self._turns.scatter(self._patience_s()) and met
        rounds = 0
        with self._looking():
            while not wrong and (rounds == 0 or _clock() - self._began < self._context.seconds):
                rounds += 1
                wrong = self._round_trip()
        if not met:
            self._place.remarks.append(
                "another device missed the barrier, so its copies may have overlapped with this measurement"
            )
        return self._conclude(before, self._place.link(), wrong, rounds)

    def _patience_s(self) -> float:
        return max(0.0, self._began + self._context.seconds + PATIENCE_S - _clock())

    def _buffers(self) -> None:
        pinned, on = not self._device.on_host, self._device.torch_name
        source = torch.Generator().manual_seed(20_260_801 + self._device.index)
        words = torch.randint(-(1 << 62), 1 << 62, (self._size // 8,), dtype=torch.int64, generator=source)
        self._sent = words.view(torch.uint8).pin_memory() if pinned else words.view(torch.uint8)
        self._back = torch.empty(self._size, dtype=torch.uint8, pin_memory=pinned)
        self._there = torch.empty(self._size, dtype=torch.uint8, device=on)
        self._returning = torch.empty(self._size, dtype=torch.uint8, device=on)
        self._sides = [] if self._device.on_host else [torch.cuda.Stream(on), torch.cuda.Stream(on)]

    def _round_trip(self) -> CorruptTransfer | None:
        """Copy to the device, to a second buffer, and back; compare on the host. Poisoned buffers expose copies that do nothing."""
        self._context.note("there and back, every byte compared")
        self._there.fill_(_POISON)
        self._back.fill_(_POISON)
        self._there.copy_(self._sent, non_blocking=True)
        if self._context.fault == "corrupt":
            self._there[self._size // 2 + 77] ^= 1
        self._returning.copy_(self._there, non_blocking=True)
        self._back.copy_(self._returning, non_blocking=True)
        synchronize_device(self._device)
        return self._arrived("there and back")

    def _arrived(self, way: str) -> CorruptTransfer | None:
        """Compare both targets with their expected content on their own side, without a copy."""
        for target, right in ((self._back, self._sent), (self._there, self._returning)):
            if not torch.equal(target.view(torch.int64), right.view(torch.int64)):  # much faster than bytes
                places = (target != right).nonzero().flatten()
                return CorruptTransfer(way, places.numel(), tuple(places[:LISTED_MAX].tolist()))
        return None

    def _measure(self) -> CorruptTransfer | None:
        """Measure each direction, then both at once, each for its share of the turn. Targets are inverted before."""
        each_s = min(ALONE_S_MAX, ALONE_SHARE * self._context.seconds / max(1, len(self._context.devices)) / 3)
        there: Callable[[], object] = lambda: self._there.copy_(self._sent, non_blocking=True)  # noqa: E731 - two of a kind
        back: Callable[[], object] = lambda: self._back.copy_(self._returning, non_blocking=True)  # noqa: E731 - same
        for name, said, ways, targets in (
            ("h2d_rate", "to the device", (there,), (self._there,)),
            ("d2h_rate", "to the host", (back,), (self._back,)),
            ("both_ways_rate", "both ways at once", (there, back), (self._there, self._back)),
        ):
            self._context.note(f"{name}, alone")
            for target in targets:
                target.bitwise_not_()
            rate = self._rate(ways, each_s)
            if wrong := self._arrived(f"{said}, during the timed copies"):
                return wrong
            self._rates[name] = rate
        return None

    def _rate(self, ways: tuple[Callable[[], object], ...], seconds: float) -> float:
        """GB/s over all `ways` at once; at least two copies each."""
        times = SLOW_FACTOR if self._context.fault == "slow" else 1

        def copies(number: int) -> int:
            done, until = 0, _clock() + seconds
            while done < 2 or _clock() < until:
                for _ in range(times):
                    self._on_side(number, ways[number])
                done += 1
            return done

        synchronize_device(self._device)
        began, counts = _clock(), [0] * len(ways)

        def side(number: int) -> None:
            select_device(self._device)
            counts[number] = copies(number)

        others = [threading.Thread(target=side, args=(number,)) for number in range(1, len(ways))]
        for other in others:
            other.start()
        side(0)
        for other in others:
            other.join()
        synchronize_device(self._device)
        return sum(counts) * self._size / (_clock() - began) / 1e9

    def _on_side(self, number: int, way: Callable[[], object]) -> None:
        """One copy; on a GPU in its own stream and synchronized, so that no queue grows."""
        if not self._sides:
            way()
            return
        with torch.cuda.stream(self._sides[number]):
            way()
        self._sides[number].synchronize()

    @contextmanager
    def _looking(self) -> Iterator[None]:
        """Read the link repeatedly during the test. A driver that does not respond blocks only this thread."""
        over = threading.Event()

        def look() -> None:
            while True:
                self._busy = gpu_pcie_link.merge_best_readings(self._busy, self._place.link())
                if over.wait(_LOOK_EVERY_S):
                    return

        looker = threading.Thread(target=look, daemon=True)
        looker.start()
        try:
            yield
        finally:
            over.set()
            looker.join(DRIVER_PATIENCE_S)

    def _conclude(self, before: PcieLink, after: PcieLink, wrong: CorruptTransfer | None, rounds: int) -> Result:
        faults, remarks = gpu_pcie_link.judge_pcie_link(before, self._busy, after)
        reasons = list(faults)
        if wrong:
            reasons.insert(
                0, f"{wrong.count} of {self._size} bytes arrived wrong ({wrong.way}), first at {wrong.first[0]:#x}"
            )
        setting = f"{'host' if self._device.on_host else 'pinned'} {self._size >> 20} MiB"
        return Result(
            test=TEST,
            outcome=Outcome.FAIL if reasons else Outcome.PASS,
            device=self._device.name,
            reason="; ".join(reasons),
            figures=tuple(
                Figure(name=name, value=round_to_four_digits(rate), unit="GB/s", setting=setting)
                for name, rate in self._rates.items()
            ),
            locations=_build_locations(self._device, wrong) if reasons else (),
            remarks=(*self._place.remarks, *remarks),
            evidence=build_link_evidence(self._busy, after) | {"bytes": self._size, "rounds": rounds},
        )


def _build_locations(device: Device, wrong: CorruptTransfer | None) -> tuple[Location, ...]:
    gpu = device.uuid or device.name
    return tuple(Location(gpu=gpu, address=f"{place:#x}") for place in wrong.first) if wrong else (Location(gpu=gpu),)


def build_link_evidence(busy: PcieLink, after: PcieLink) -> Evidence:
    """The link's properties as evidence, for expectations of its rates. Pure."""
    found = {
        "pcie_address": after.address,
        "pcie_generation": busy.generation,
        "pcie_generation_max": busy.generation_max,
        "pcie_width": busy.width,
        "pcie_width_max": busy.width_max,
        "pcie_replays": after.replays,
        "numa_node": after.numa,
    }
    return {name: value for name, value in found.items() if value is not None and value != ""}
