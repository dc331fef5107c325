"""Collectives over all devices: exact results, bandwidth, latency of small ones, and whether all ranks arrive on time."""

from __future__ import annotations

import statistics
import time
from collections.abc import Iterator
from typing import Any

import torch
import torch.distributed as dist

from preflight.check_context import Context, Device
from preflight.checks.collective_ops import (
    OPERATIONS,
    AllReduce,
    Operation,
    PartFault,
    RankGroup,
    compute_own_bits,
    find_float_faults,
)
from preflight.checks.hashed_payloads import WORD_BYTES, derive_seed, fill_words
from preflight.checks.nccl_choices import NcclChoice, choose_for_devices, is_choice_refused, open_group
from preflight.checks.pair_exchange import reduce_longest_seconds, wait_for_all_devices
from preflight.checks.torch_devices import start_timer, synchronize_device
from preflight.device_comparison.collective_results import UNOWNED, find_wrong_part_owners
from preflight.results import Figure, Location, Outcome, Result

TEST = "collectives"
HOST_SIZES = {"gate": (1 << 20,), "standard": (1 << 20, 8 << 20), "burn-in": (1 << 20, 8 << 20)}
GPU_SIZES = {"gate": (1 << 30,), "standard": (64 << 20, 1 << 30, 8 << 30), "burn-in": (64 << 20, 1 << 30, 8 << 30)}
BUFFERS = 3  # sent, received, and temporary
REPEATS = {"gate": 3, "standard": 8, "burn-in": 8}
SMALL_REPEATS = 21
CHOICE_REPEATS = 3
ARRIVALS = 3
LATE_S = 0.4  # delay of an injected late rank
STUCK_BIT = 1 << 3  # in each sum, whoever owns the bit
SLOW_S = 0.7  # delay that an injected slow rank adds to an all_reduce


def check_collectives(context: Context) -> Iterator[Result]:
    """One result per device; 'not applicable' for a single device."""
    device = context.device
    if device is None:
        raise ValueError("collectives tests devices against each other and needs a device")
    if len(context.devices) < 2:
        yield Result(test=TEST, outcome=Outcome.NOT_APPLICABLE, reason="a single device has no peer for a collective")
        return
    yield _Collectives(context, device).run()


class _Collectives:
    def __init__(self, context: Context, device: Device) -> None:
        self._context, self._device = context, device
        self._group = RankGroup(device.index, len(context.devices), device.torch_name)
        self._rates: dict[tuple[str, str, str], list[float]] = {}  # values by figure's name, unit, setting
        self._faults: list[PartFault] = []
        self._refused: list[str] = []
        self._pass = 0

    def run(self) -> Result:
        arrived_s = self._arrivals()
        began = time.perf_counter()
        while True:
            self._once()
            self._pass += 1
            spent = reduce_longest_seconds(self._device, time.perf_counter() - began)
            if self._context.level != "burn-in" or spent * (self._pass + 1) / self._pass > self._context.seconds:
                break
        for choice in choose_for_devices(self._context.level, self._group.ranks, self._device):
            self._run_choice(choice)
        return self._result(arrived_s)

    def _arrivals(self) -> float:
        """Median seconds from a common start until this rank is ready to reduce, after the same work on each rank."""
        words = torch.empty(self._sizes[0] // WORD_BYTES, dtype=torch.int64, device=self._group.device)
        seconds = []
        for number in range(ARRIVALS + 1):
            self._context.note(f"arriving, time {number}")
            wait_for_all_devices(self._device)
            began = time.perf_counter()
            fill_words(words, derive_seed(number))
            synchronize_device(self._device)
            if self._context.fault == "late_rank":
                time.sleep(LATE_S)
            seconds.append(time.perf_counter() - began)
        return statistics.median(seconds[1:])  # the first is a warm-up

    def _once(self) -> None:
        for number, kind in enumerate(OPERATIONS):
            for size in self._sizes:
                self._context.note(f"{kind.name} of {_format_size(size)}")
                operation = kind(self._group, size // WORD_BYTES, derive_seed(self._pass, number, size))
                self._timed(operation, REPEATS.get(self._context.level, 3))
                del operation
        self._context.note("all_reduce of floats")
        self._faults += find_float_faults(self._group, derive_seed(self._pass), self._spoil_sum)
        self._context.note("small all_reduce")
        self._timed(AllReduce(self._group, self._group.ranks, derive_seed(self._pass)), SMALL_REPEATS, small=True)

    def _run_choice(self, choice: NcclChoice) -> None:
        """All-reduce with one algorithm, at the largest size, or one protocol, at the smallest, which suits all of them."""
        self._context.note(f"starting NCCL with {choice.variable}={choice.value}")
        size = self._sizes[-1] if choice.variable == "NCCL_ALGO" else self._sizes[0]
        try:
            with open_group(choice) as process_group:
                group = self._group._replace(process_group=process_group)
                dist.all_reduce(torch.zeros(1, dtype=torch.int64, device=group.device), group=process_group)
                self._context.note(f"all_reduce of {_format_size(size)} with {choice.value}")
                operation = AllReduce(group, size // WORD_BYTES, derive_seed(size))
                self._timed(operation, CHOICE_REPEATS, choice=choice.value)
        except RuntimeError as error:
            if not is_choice_refused(error):
                raise
            self._refused.append(f"NCCL does not run {choice.value} here: {' '.join(str(error).split())[:200]}")

    @property
    def _sizes(self) -> tuple[int, ...]:
        sizes = (HOST_SIZES if self._device.on_host else GPU_SIZES).get(self._context.level, (1 << 20,))
        free = min(d.memory_bytes for d in self._context.devices) or BUFFERS * sizes[0]  # the same on each device
        return tuple(size for size in sizes if BUFFERS * size <= free) or (free // BUFFERS,)

    def _timed(self, operation: Operation, repeats: int, *, small: bool = False, choice: str = "") -> None:
        seconds = []
        for turn in range(repeats + 1):
            if operation.give(turn):
                self._spoil_words(operation)
            operation.ready()
            synchronize_device(self._device)
            wait_for_all_devices(self._device)
            read_seconds = start_timer(self._device)
            if self._context.fault == "slow" and operation.in_place and not small:
                time.sleep(SLOW_S)
            operation.perform()
            seconds.append(read_seconds())
            synchronize_device(self._device)
            if self._context.fault == "stuck_bit" and operation.reduces:
                operation.receive[operation.receive.numel() // 2] ^= STUCK_BIT
            self._faults += operation.faults()
        middle = statistics.median(seconds[1:])  # the first sets up connections
        size = operation.words * WORD_BYTES
        setting = f"{operation.name}, {self._group.ranks} ranks, {_format_size(size)}, {dist.get_backend()}"
        if choice:
            setting += f", {choice.lower()}"
        if small:
            self._rates.setdefault(("collective_latency", "us", setting), []).append(middle * 1e6)
        else:
            rate = size / middle / 1e9 * operation.share()
            self._rates.setdefault(("bus_rate", "GB/s", setting), []).append(rate)

    def _spoil_words(self, operation: Operation) -> None:
        if self._context.fault == "wrong_sum":
            mine = compute_own_bits(self._group.rank, self._group.ranks, operation.turn)
            lowest = mine & -mine
            operation.send[operation.send.numel() // 2] ^= lowest - (1 << 64) if lowest >> 63 else lowest

    def _spoil_sum(self, values: Any) -> None:
        if self._context.fault == "wrong_sum":
            values[values.numel() // 2] += 1

    def _result(self, arrived_s: float) -> Result:
        names = [device.name for device in self._context.devices]
        sums = [(fault.turn, fault.senders) for fault in self._faults if fault.turn is not None]
        proven = find_wrong_part_owners(sums)
        moved = [sender for fault in self._faults if fault.turn is None for sender in fault.senders]
        whose = dict.fromkeys([*proven, *moved])
        sentences = dict.fromkeys(fault.sentence for fault in self._faults)
        figures = [
            Figure(name=name, value=round(statistics.median(values), 6), unit=unit, setting=setting)
            for (name, unit, setting), values in self._rates.items()
        ]
        return Result(
            test=TEST,
            outcome=Outcome.FAIL if self._faults else Outcome.ERROR if self._refused else Outcome.PASS,
            device=self._device.name,
            reason=next(iter([*sentences, *self._refused]), ""),
            figures=tuple(figures),
            locations=tuple(Location(gpu=self._device.name, peer=names[sender]) for sender in whose),
            evidence={
                "arrived_s": round(arrived_s, 6),
                "passes": self._pass,
                "wrong_kinds": len(sentences),
                "backend": str(dist.get_backend()),
                **({UNOWNED: True} if sums and not proven else {}),
            },
        )


def _format_size(size: int) -> str:
    for unit, shift in (("GiB", 30), ("MiB", 20), ("KiB", 10)):
        if size >= 1 << shift and size % (1 << shift) == 0:
            return f"{size >> shift} {unit}"
    return f"{size} B"
