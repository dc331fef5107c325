"""Missing GPUs: what NVML lists against the configured count and the devices on the PCI bus.

A GPU bound to a driver for virtual machines was passed through on purpose and is no fault. If a configured count is
met, the bus is not compared.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

import msgspec

from healthd.collectors.pcie import PcieHop
from healthd.findings.facts import Clear, Fact, Raise
from healthd.samples.nvml import Inventory
from vocabulary.finding import Evidence, Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "gpu_count"
BELOW_CONFIGURED, NOT_ENUMERATED, NOT_BOUND = "below_configured", "not_enumerated", "not_bound"
_HOST = Component(ComponentKind.HOST)
_PASSTHROUGH = ("vfio", "pci-stub", "pciback")  # parts of names of drivers that pass a device to a virtual machine


class Limits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Section `gpu_count` of the thresholds: GPUs of one product that a node with any should have; 0: any number."""

    expected: float


class _GpuShortage(NamedTuple):
    what: str
    expected: int
    found: int


class BusComparison(NamedTuple):
    """`renew`: the driver must enumerate its GPUs again before the result counts."""

    facts: tuple[Fact, ...]
    renew: bool


class GpuCountCheck:
    """`configured` is the node's own count, if it has one; `limits_of` returns a product's limits.

    Remembers for which difference between bus and NVML it requested a new inventory, to request it only once.
    """

    def __init__(self, configured: int | None, limits_of: Callable[[str], Limits]) -> None:
        self._configured = configured
        self._limits_of = limits_of
        limits_of("")  # an invalid section fails now, not with the first GPU
        self._asked: tuple[Inventory | None, frozenset[str]] = (None, frozenset())

    def falls_short(self, inventory: Inventory) -> bool:
        """Return whether NVML has fewer GPUs than are configured."""
        return bool(self._shortages(inventory))

    def judge_inventory(self, inventory: Inventory, at: float) -> list[Fact]:
        """Compare with the configured count. GPUs that do not answer are enumerated, and so not missing."""
        shortages = self._shortages(inventory)
        if not shortages:
            return [_clear_code(BELOW_CONFIGURED, at, "NVML: as many GPUs as configured")]
        words = "; ".join(f"{each.found} of {each.expected} {each.what}" for each in shortages)
        evidence: Evidence = {
            "expected": sum(each.expected for each in shortages),
            "found": sum(each.found for each in shortages),
        }
        summary = f"NVML lists {words}: find the missing ones with lspci -d 10de: and in the kernel log"
        return [_raise_error(BELOW_CONFIGURED, summary, at, evidence)]

    def judge_bus(
        self, hops: Sequence[PcieHop], inventory: Inventory | None, unread: Collection[str], at: float
    ) -> BusComparison:
        """Compare the bus with the inventory.

        Args:
            hops: devices on the bus.
            inventory: what NVML enumerated; None: NVML is unavailable, which is another finding.
            unread: addresses of GPUs that are left out of the sweeps: enumerated, though not listed.
            at: UTC seconds.
        """
        on_bus = {hop.pci: hop.driver for hop in hops if hop.kind == "gpu"}
        listed = {gpu.pci for gpu in inventory.gpus} if inventory else set[str]()
        if inventory is None or (listed and not listed & on_bus.keys()):
            return BusComparison((), renew=False)  # this /sys belongs to another machine than the driver
        differs = frozenset(listed.symmetric_difference(on_bus) - set(unread) - set(_list_passthrough_gpus(on_bus)))
        asked_of, asked = self._asked
        if differs and differs != asked:
            self._asked = inventory, differs
            return BusComparison((), renew=True)
        if not differs:
            self._asked = None, differs
        elif inventory is asked_of:
            return BusComparison((), renew=False)  # the new inventory has not arrived yet
        return BusComparison(tuple(self._compare(on_bus, differs - listed, inventory, len(unread), at)), renew=False)

    def _compare(
        self, on_bus: dict[str, str], missing: frozenset[str], inventory: Inventory, unread: int, at: float
    ) -> list[Fact]:
        held = sorted(pci for pci in missing if on_bus[pci] == "nvidia")
        loose = sorted(missing.difference(held))
        nameless = max(0, inventory.count - len(inventory.gpus) - unread)  # enumerated but not identified
        intended = self._configured is not None and inventory.count >= self._configured
        aside = f" ({len(away)} more passed to virtual machines)" if (away := _list_passthrough_gpus(on_bus)) else ""
        facts: list[Fact] = []
        if len(held) > nameless and not intended:
            summary = f"the NVIDIA driver holds {', '.join(held)}, but NVML does not list it{aside}: see the kernel log"
            facts.append(
                _raise_error(NOT_ENUMERATED, summary, at, {"gpus": ", ".join(held), "listed": len(inventory.gpus)})
            )
        else:
            facts.append(_clear_code(NOT_ENUMERATED, at, "NVML lists every GPU that the NVIDIA driver is bound to"))
        if loose and not intended:
            drivers = ", ".join(f"{pci} ({on_bus[pci] or 'no driver'})" for pci in loose)
            summary = (
                f"the NVIDIA driver does not hold {drivers}{aside}: it failed, or it was unbound. If that is"
                " intended, bind it to vfio-pci or set gpus.expected"
            )
            facts.append(_raise_error(NOT_BOUND, summary, at, {"gpus": drivers, "listed": len(inventory.gpus)}))
        else:
            facts.append(
                _clear_code(
                    NOT_BOUND, at, "the NVIDIA driver is bound to every GPU that is not passed to virtual machines"
                )
            )
        return facts

    def _shortages(self, inventory: Inventory) -> list[_GpuShortage]:
        if self._configured is not None:
            few = inventory.count < self._configured
            return [_GpuShortage("GPUs", self._configured, inventory.count)] if few else []
        nameless = inventory.count - len(inventory.gpus)
        found = Counter(gpu.name for gpu in inventory.gpus)
        each = [_GpuShortage(name, int(self._limits_of(name).expected), count) for name, count in sorted(found.items())]
        return [shortage for shortage in each if shortage.found + nameless < shortage.expected]


def _list_passthrough_gpus(on_bus: dict[str, str]) -> list[str]:
    return [pci for pci, driver in on_bus.items() if any(part in driver for part in _PASSTHROUGH)]


def _raise_error(code: str, summary: str, at: float, evidence: Evidence) -> Raise:
    return Raise(
        check=CHECK, code=code, component=_HOST, severity=Severity.ERROR, summary=summary, at=at, evidence=evidence
    )


def _clear_code(code: str, at: float, by: str) -> Clear:
    return Clear(check=CHECK, code=code, component=_HOST, at=at, by=by)
