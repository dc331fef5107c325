"""Data exchange of one pair of devices: in each direction and in both at once, timed and verified."""

from __future__ import annotations

import time
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from preflight.check_context import Context, Device
from preflight.checks.hashed_payloads import (
    WORD_BYTES,
    WordMismatch,
    derive_seed,
    fill_sentinel,
    fill_words,
    find_mismatched_words,
)
from preflight.checks.torch_devices import start_timer, synchronize_device

WAYS = ("up", "down", "both")  # from the lower index to the higher, back, both at once
HOST_BYTES = 1 << 20
GPU_BYTES = 256 << 20
REPEATS = {"gate": 5, "standard": 8, "burn-in": 8}  # timings, of which the least counts: others can only delay
HOST_REPEATS = {"gate": 3, "standard": 8, "burn-in": 8}
GPU_TRANSFERS = 20  # in one timing: one alone takes 0.7 ms over NVLink, and varies by what a dead link of 18 costs
SLOW_S = 0.25  # delay that an injected slow end adds to one transfer


class PartnerRates(NamedTuple):
    """Results from one partner: GB/s in one direction alone, GB/s with both, and errors."""

    alone: float
    both_ways: float
    wrong: WordMismatch | None


class PairExchange:
    """The buffers of this device, the number of timings, and that of transfers in each."""

    def __init__(self, context: Context, device: Device) -> None:
        most = HOST_BYTES if device.on_host else GPU_BYTES
        words = max(1, min(most, device.memory_bytes // 4 or most) // WORD_BYTES)
        self._device, self._fault = device, context.fault
        self._neighbour = (device.index - 1) % max(1, len(context.devices))
        self.repeats = (HOST_REPEATS if device.on_host else REPEATS).get(context.level, 3)
        self.transfers = 1 if device.on_host else GPU_TRANSFERS
        self.sent = torch.empty(words, dtype=torch.int64, device=device.torch_name)
        self.received = torch.empty_like(self.sent)

    @property
    def nbytes(self) -> int:
        """Bytes per transfer."""
        return int(self.sent.numel()) * WORD_BYTES

    def with_peer(self, peer: int, round_number: int) -> PartnerRates:
        """Run all directions with the device of index `peer`, which does the same."""
        me, rates, wrong = self._device.index, dict.fromkeys(WAYS, 0.0), None
        fill_words(self.sent, derive_seed(round_number, me, peer))
        for way in WAYS:
            sends = way == "both" or (way == "up") == (me < peer)
            receives = way == "both" or not sends
            seconds = []
            if not self._device.on_host:
                self._transfer(peer, sends=sends, receives=receives, transfers=1)  # connects and warms up
            for _ in range(self.repeats):
                if receives:
                    fill_sentinel(self.received)
                self._meet(peer)
                seconds.append(self._transfer(peer, sends=sends, receives=receives, transfers=self.transfers))
                if receives:
                    wrong = wrong or self._compare(derive_seed(round_number, peer, me))
            rates[way] = self.nbytes / min(seconds) / 1e9
        alone = rates["down"] if me < peer else rates["up"]
        return PartnerRates(alone, rates["both"], wrong)

    def _meet(self, peer: int) -> None:
        """Synchronize only with the partner: if the pair hangs, no other device waits here, so the pair is identified."""
        word = torch.zeros(2, dtype=torch.int64, device=self._device.torch_name)
        _start_both_directions(dist.P2POp(dist.isend, word[:1], peer), dist.P2POp(dist.irecv, word[1:], peer))
        synchronize_device(self._device)

    def _transfer(self, peer: int, *, sends: bool, receives: bool, transfers: int) -> float:
        """Seconds of one transfer, until the sent data is taken, or the expected data has arrived."""
        read_seconds = start_timer(self._device)
        if self._fault == "slow_device" or (self._fault == "slow_link" and peer == self._neighbour and sends):
            time.sleep(SLOW_S)
        for _ in range(transfers):
            wanted = [dist.P2POp(dist.isend, self.sent, peer)] if sends else []
            wanted += [dist.P2POp(dist.irecv, self.received, peer)] if receives else []
            _start_both_directions(*wanted)
        seconds = read_seconds()
        synchronize_device(self._device)
        return seconds / transfers

    def _compare(self, seed: int) -> WordMismatch | None:
        if self._fault == "corrupt":
            self.received[self.received.numel() // 2] ^= 1 << 21
        return find_mismatched_words(self.received, seed)


def _start_both_directions(*wanted: Any) -> None:
    """Post both operations at once: two ends that each send before they receive could deadlock."""
    for work in dist.batch_isend_irecv(list(wanted)):
        work.wait()


def wait_for_all_devices(device: Device) -> None:
    """Barrier over all devices, so that no device's time includes another's preparation."""
    dist.all_reduce(torch.zeros(1, dtype=torch.int32, device=device.torch_name))
    synchronize_device(device)


def reduce_longest_seconds(device: Device, seconds: float) -> float:
    """The maximum over all devices; the same on each, so that they decide alike."""
    value = torch.tensor([seconds], dtype=torch.float64, device=device.torch_name)
    dist.all_reduce(value, op=dist.ReduceOp.MAX)
    return float(value[0])


def gather_device_values(device: Device, values: list[float]) -> list[list[float]]:
    """An equal number of values from every device, by index."""
    mine = torch.tensor(values, dtype=torch.float64, device=device.torch_name)
    all_values: list[Any] = [torch.empty_like(mine) for _ in range(dist.get_world_size())]
    dist.all_gather(all_values, mine)
    return [each.tolist() for each in all_values]
