"""Algorithms and protocols of NCCL that a test runs on purpose, each in a process group of its own.

NCCL picks one by size and topology, so a slow or missing one is not noticed while another is good enough: without NVLS the
eight GPUs of an H200 node reach 366 instead of 473 GB/s. Torch has no such option of a group, but NCCL reads NCCL_ALGO and
NCCL_PROTO from the environment whenever it creates a communicator. Not run on GPUs yet.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

import torch
import torch.distributed as dist

from preflight.check_context import Device
from preflight.checks.pair_exchange import reduce_longest_seconds
from preflight.host.nvml_driver import NvmlDriver
from preflight.host.nvml_library import NoDriverError
from preflight.host.software_inventory import read_fabric_state

NVLS_RANKS_MIN = 3  # NCCL uses none between two GPUs
FABRIC_COMPLETED = 3
_MULTICAST_SUPPORTED = 132  # of CUdevice_attribute
_REFUSALS = ("invalid usage", "internal error")  # NCCL's results for "no algorithm/protocol available", by release


class NcclChoice(NamedTuple):
    """A value of NCCL_ALGO or NCCL_PROTO."""

    variable: str
    value: str


RING, NVLS = NcclChoice("NCCL_ALGO", "Ring"), NcclChoice("NCCL_ALGO", "NVLS")
SIMPLE, LL128 = NcclChoice("NCCL_PROTO", "Simple"), NcclChoice("NCCL_PROTO", "LL128")


def list_choices(level: str, ranks: int, *, fabric: bool, multicast: bool) -> tuple[NcclChoice, ...]:
    """What to run at this level. Pure.

    `fabric`: NVSwitches connect the GPUs. Elsewhere LL128 may corrupt data, by NCCL's documentation.
    """
    chosen = [RING] if level != "gate" else []
    if chosen and fabric and multicast and ranks >= NVLS_RANKS_MIN:
        chosen.append(NVLS)
    if level == "burn-in":
        chosen += [SIMPLE, LL128] if fabric else [SIMPLE]
    return tuple(chosen)


def choose_for_devices(level: str, ranks: int, device: Device) -> tuple[NcclChoice, ...]:
    """What to run on this machine, the same on all devices; nothing on the host, where NCCL does not run."""
    if device.on_host:
        return ()
    fabric, multicast = (_all_have(device, has=has) for has in (_has_fabric(device), _has_multicast(device)))
    return list_choices(level, ranks, fabric=fabric, multicast=multicast)


@contextmanager
def open_group(choice: NcclChoice) -> Iterator[Any]:
    """A process group over all devices. NCCL creates its communicator at the latest in the first collective."""
    os.environ[choice.variable] = choice.value
    try:
        group = dist.new_group()
        yield group
    finally:
        del os.environ[choice.variable]
    # Not after an error: NCCL may wait for ranks that had none. The group then ends with the process.
    dist.destroy_process_group(group)


def is_choice_refused(error: RuntimeError) -> bool:
    """Whether NCCL says that it cannot run a choice. Any other error is a failure."""
    return any(words in str(error) for words in _REFUSALS)


def _all_have(device: Device, *, has: bool) -> bool:
    """Whether all devices have it: they must run the same, or would wait for each other for ever."""
    return reduce_longest_seconds(device, 0.0 if has else 1.0) == 0.0


def _has_fabric(device: Device) -> bool:
    try:
        driver = NvmlDriver()
    except NoDriverError:
        return False
    gpu = driver.gpu(device.uuid)
    return gpu is not None and read_fabric_state(driver, gpu)[0] == FABRIC_COMPLETED


def _has_multicast(device: Device) -> bool:
    """CUDA's attribute; NCCL asks for the same."""
    number = ctypes.c_int(0)
    try:
        result = ctypes.CDLL("libcuda.so.1").cuDeviceGetAttribute(
            ctypes.byref(number), _MULTICAST_SUPPORTED, torch.device(device.torch_name).index
        )
    except (OSError, AttributeError):
        return False
    return result == 0 and number.value == 1
