"""The maximum rate of a link or memory, calculated from the hardware's properties. Pure.

A faster measurement is wrong, and one far below it is slow whatever a table says.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from preflight.expectations.bounds import SourceBound
from preflight.results import Expectation, Figure, Result, Source

# Bit rate of a lane in Gb/s, and its payload share: 8b/10b, 128b/130b, then flits of 256 bytes with 236 of data.
_PCIE = {
    1: (2.5, 0.8),
    2: (5.0, 0.8),
    3: (8.0, 128 / 130),
    4: (16.0, 128 / 130),
    5: (32.0, 128 / 130),
    6: (64.0, 236 / 256),
}
PCIE_FLOOR = 0.65  # of the encoded rate: packet headers cost a tenth, poor root ports and virtual machines more
MEMORY_FLOOR = 0.7
NVLINK_FLOOR = 0.65
LIE = 1.05  # of the limit: clocks and sizes are rounded by less


class PhysicalLimit(NamedTuple):
    """The maximum of a figure, the share that a healthy machine reaches, and the calculation as text."""

    most: float
    floor: float
    words: str


def compute_pcie_rate(generation: int, width: int) -> float | None:
    """GB/s in one direction after line encoding, before packet headers; None for an unknown generation."""
    if generation not in _PCIE or width < 1:
        return None
    gigabits, encoding = _PCIE[generation]
    return gigabits * encoding * width / 8


def compute_nvlink_rate(links: int, per_link: float) -> float | None:
    """GB/s in one direction over all links of a GPU; `per_link` is that of one link, in GB/s."""
    return links * per_link if links > 0 and per_link > 0 else None


def compute_memory_rate(clock_mhz: float, bus_bits: int) -> float | None:
    """GB/s of a memory with two transfers per clock, as the driver reports clock and width of HBM."""
    return 2 * clock_mhz * bus_bits / 8 / 1000 if clock_mhz > 0 and bus_bits > 0 else None


_PCIE_FIGURES = {"h2d_rate": 1, "d2h_rate": 1, "both_ways_rate": 2}
_MEMORY_FIGURES = ("copy_rate", "write_rate", "read_rate", "verify_rate")
_MEMORY_TESTS = ("memory_bandwidth", "memory_pattern", "memory_retention")


def derive_limits(results: Sequence[Result], device: str) -> Mapping[str, PhysicalLimit]:
    """The limits of one device by `pcie`, `nvlink` and `memory`, from properties that any test added to its evidence.

    Uses `pcie_generation_max`, `pcie_width_max`, `nvlink_links`, `nvlink_link_gb_s`, `memory_clock_max_mhz` and
    `memory_bus_bits`.
    """
    seen = {name: value for result in results if result.device == device for name, value in result.evidence.items()}
    number = {
        name: float(value)
        for name, value in seen.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    found = {}
    generation, width = int(number.get("pcie_generation_max", 0)), int(number.get("pcie_width_max", 0))
    if rate := compute_pcie_rate(generation, width):
        found["pcie"] = PhysicalLimit(rate, PCIE_FLOOR, f"PCIe {generation}.0 x{width}, {rate:.1f} GB/s one way")
    links, per_link = int(number.get("nvlink_links", 0)), number.get("nvlink_link_gb_s", 0.0)
    if rate := compute_nvlink_rate(links, per_link):
        found["nvlink"] = PhysicalLimit(rate, NVLINK_FLOOR, f"{links} NVLinks of {per_link:g} GB/s one way")
    clock, bits = number.get("memory_clock_max_mhz", 0.0), int(number.get("memory_bus_bits", 0))
    if rate := compute_memory_rate(clock, bits):
        found["memory"] = PhysicalLimit(rate, MEMORY_FLOOR, f"{bits} bits of memory at {clock:g} MHz, {rate:.0f} GB/s")
    return found


def select_limit(test: str, figure: Figure, known: Mapping[str, PhysicalLimit]) -> PhysicalLimit | None:
    """The limit of a figure, or None."""
    if figure.unit != "GB/s":
        return None
    if test == "host_link" and figure.name in _PCIE_FIGURES and "pcie" in known:
        times = _PCIE_FIGURES[figure.name]
        # Both directions at once share packet headers and, on many machines, the memory behind the root port.
        return known["pcie"]._replace(
            most=times * known["pcie"].most, floor=PCIE_FLOOR if times == 1 else PCIE_FLOOR / 1.5
        )
    if test == "peer_links" and figure.name == "pair_rate" and figure.setting.startswith("nvlink"):
        return known.get("nvlink")
    if test in _MEMORY_TESTS and figure.name in _MEMORY_FIGURES:
        return known.get("memory")
    return None


def build_physical_bound(test: str, limit: PhysicalLimit) -> SourceBound | None:
    """The share of the limit that a healthy machine reaches; None for tests that do more than move data."""
    if test in ("memory_pattern", "memory_retention"):
        return None
    words = f"{limit.floor:.0%} of {limit.words}"
    expectation = Expectation(source=Source.PHYSICAL, at_least=limit.most * limit.floor, words=words)
    return SourceBound(expectation=expectation, usual=limit.most)


def exceeds_limit(figure: Figure, most: float) -> bool:
    """Whether a rate exceeds the physical limit."""
    return figure.value > most * LIE
