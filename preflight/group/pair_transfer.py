"""Data exchange of one pair: both ends send at once and verify every word, with gloo over TCP or NCCL between GPUs.

Not run on a GPU yet: of NCCL nothing but its calls' names was checked.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import msgspec
import torch
from torch.distributed import PrefixStore, ProcessGroupGloo

from preflight.check_context import Device
from preflight.checks.torch_devices import start_timer, synchronize_device
from preflight.fault_localisation.localisation_records import Why
from preflight.group.group_records import RailMeasurement
from vocabulary.text.plurals import format_count

REPEATS = 5
HOST_WORDS = 1 << 20  # of eight bytes: 8 MiB, above the size of sockets' buffers and caches
GPU_WORDS = 1 << 25  # 256 MiB: a transfer of milliseconds
POISON = -0x2152411021524111  # content of the buffer before data arrives


class GroupRail(msgspec.Struct, frozen=True, kw_only=True):
    """One network path of this node. `number` is None if there is only one.

    `device` is torch's, whose nearest adapter NCCL uses; `interface` is gloo's network interface, "" for the system's choice.
    """

    number: int | None = None
    device: str = "cpu"
    interface: str = ""
    name: str = ""


class ExchangeRequest(msgspec.Struct, frozen=True, kw_only=True):
    """One end's task: `side` is 0 or 1. `corrupt` is the injected fault, `factor` the injected slowness."""

    seed: int
    side: int
    seconds: float
    factor: float = 1.0
    corrupt: bool = False
    words: int = 0


def exchange_payloads(
    store: PrefixStore, rail: GroupRail, what: ExchangeRequest, held: Callable[[Any], None]
) -> RailMeasurement:
    """Send and receive on one rail several times; the median rate per direction, and whether every word was correct.

    `held` receives the communicator, so that another thread can abort it.
    """
    words = what.words or (HOST_WORDS if rail.device == "cpu" else GPU_WORDS)
    group = _build_process_group(store, rail, what)
    held(group)
    payload = _generate_payload(what.seed, what.side, words, rail.device)
    expected = _generate_payload(what.seed, 1 - what.side, words, rail.device)
    if what.corrupt:
        payload[words // 3] ^= 1 << 17
    came = torch.empty(2 * words, dtype=torch.int64, device=rail.device)
    seconds, device = [], Device(name=rail.name, torch_name=rail.device, index=0, label=rail.name)
    for repeat in range(REPEATS + 1):  # the first one connects
        came.fill_(POISON)
        synchronize_device(device)
        read_seconds = start_timer(device)
        group._allgather_base(came, payload).wait()  # noqa: SLF001 - torch's only way to a group that is not the default one
        spent = read_seconds()
        synchronize_device(device)
        if repeat:
            seconds.append(spent)
        from_peer = came[words:] if what.side == 0 else came[:words]
        if wrong := int((from_peer != expected).sum()):
            text = f"{wrong} of {format_count(words, 'word')} arrived corrupt in transfer {repeat}"
            return RailMeasurement(rail=rail.number, why=Why.ERROR, words=text, wrong_words=wrong, factor=what.factor)
    rate = 8 * words / statistics.median(seconds) / 1e9
    return RailMeasurement(rail=rail.number, rate=rate * what.factor, factor=what.factor)


def _build_process_group(store: PrefixStore, rail: GroupRail, what: ExchangeRequest) -> Any:
    limit = timedelta(seconds=what.seconds)
    if rail.device != "cpu":
        torch.cuda.set_device(rail.device)
        options = torch.distributed.ProcessGroupNCCL.Options()
        options._timeout = limit  # noqa: SLF001 - it has no other name
        return torch.distributed.ProcessGroupNCCL(store, what.side, 2, options)
    if not rail.interface:
        return ProcessGroupGloo(store, what.side, 2, limit)
    options = ProcessGroupGloo._Options()  # noqa: SLF001 - it has no other name
    options._devices = [ProcessGroupGloo.create_device(interface=rail.interface)]  # noqa: SLF001 - it has no other name
    options._timeout = limit  # noqa: SLF001 - it has no other name
    return ProcessGroupGloo(store, what.side, 2, options)


def _generate_payload(seed: int, side: int, words: int, device: str) -> Any:
    chance = torch.Generator(device=device).manual_seed(2 * seed + side)
    return torch.randint(-(1 << 62), 1 << 62, (words,), dtype=torch.int64, device=device, generator=chance)
