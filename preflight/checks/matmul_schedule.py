"""The sequence of matrix products: the same on every device, so that their bits can be compared."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from preflight.check_context import Device
from preflight.kernels.matmul_products import KINDS, ProductKind, explain_missing_kind
from preflight.kernels.product_verification import has_fast_double

SEEDS = tuple(20_241 + 7_919 * number for number in range(16))
# Faults depend on data and history: many short runs with many seeds find more than one long run with one seed.
SEEDS_OF_LEVEL = {"gate": 2, "standard": 8, "burn-in": 16}
HOST_SIZE = 256
GPU_SIZE, GPU_SIZE_OF_UNITS, GPU_SIZE_OF_SLOW = 8192, 4096, 2048
GPU_SIZE_MIN = 1024
BYTES_PER_ELEMENT = 96  # per element of a verified product: operands, outputs, and all in double precision
UNITS = ("fp32", "fp64")  # not, or not much, faster with tensor cores


class ProductItem(NamedTuple):
    """One product: type, size (rows, columns and depth) and seed of the operands."""

    kind: ProductKind
    size: int
    seed: int

    @property
    def setting(self) -> str:
        """The parameters that determine its rate."""
        return f"{self.kind.name} {self.size}"

    def __str__(self) -> str:
        return f"{self.setting} seed {self.seed}"


def list_available_kinds(device: Device, level: str) -> tuple[list[ProductKind], dict[str, str]]:
    """The types that this device should support, and why it lacks the others.

    The gate leaves out block-scaled types: they cost it time, and no GPU has computed them for us yet.
    """
    kinds = [kind for kind in KINDS if not kind.block or level != "gate"]
    lacks = {kind.name: why for kind in kinds if (why := explain_missing_kind(kind, device.torch_name))}
    return [kind for kind in kinds if kind.name not in lacks], lacks


def choose_product_size(kind: ProductKind, device: Device) -> int:
    """The size of products of one type: as large as speed and memory allow."""
    if device.on_host:
        return HOST_SIZE
    size = GPU_SIZE_OF_UNITS if kind.name in UNITS else GPU_SIZE
    if kind.name == "fp64" and not has_fast_double(device.torch_name):
        size = GPU_SIZE_OF_SLOW
    while size > GPU_SIZE_MIN and BYTES_PER_ELEMENT * size**2 > device.memory_bytes:
        size //= 2
    return size


def schedule_products(kinds: Sequence[ProductKind], device: Device, level: str) -> Iterator[ProductItem]:
    """An endless sequence of products: all types with the first seed, with the next, and after the last seed again."""
    sizes = {kind.name: choose_product_size(kind, device) for kind in kinds}
    seeds = SEEDS[: SEEDS_OF_LEVEL.get(level, 1)] if kinds else ()
    return (ProductItem(kind, sizes[kind.name], seed) for seed in itertools.cycle(seeds) for kind in kinds)
