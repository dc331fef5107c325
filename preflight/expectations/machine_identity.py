"""Identifies machines by the UUIDs of their devices, since host names change or appear in short and long form. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from preflight.check_context import Device


class KnownMachine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node under its newest name. `at` is its newest document, `failed` the newest failed one; UTC seconds, 0: none.

    `devices` are sorted UUIDs; empty if unknown.
    """

    at: float = 0.0
    failed: float = 0.0
    devices: tuple[str, ...] = ()


def list_device_uuids(devices: Iterable[Device]) -> tuple[str, ...]:
    """The UUIDs of a machine's devices."""
    return tuple(sorted({device.uuid for device in devices if device.uuid}))


class MachineRegistry:
    """Machines by name, searchable by their devices."""

    def __init__(self, machines: Mapping[str, KnownMachine]) -> None:
        self.machines = dict(machines)
        self._owners: dict[str, str] = {}
        for name in sorted(machines, key=lambda name: (machines[name].at, name)):
            self._own(name)

    def names(self, devices: Iterable[str]) -> list[str]:
        """Names of machines that share more than half of the devices with these: one moved spare does not make two machines one."""
        sought = set(devices)
        shared = Counter(self._owners[device] for device in sought if device in self._owners)
        return sorted(
            name for name, count in shared.items() if 2 * count > min(len(sought), len(self.machines[name].devices))
        )

    def put(self, name: str, machine: KnownMachine) -> None:
        """Register a machine under this name, replacing the old entry."""
        self.drop(name)
        self.machines[name] = machine
        self._own(name)

    def drop(self, name: str) -> KnownMachine | None:
        """Remove the name; returns the old entry."""
        gone = self.machines.pop(name, None)
        for device in gone.devices if gone else ():
            if self._owners.get(device) == name:
                del self._owners[device]
        return gone

    def _own(self, name: str) -> None:
        self._owners.update(dict.fromkeys(self.machines[name].devices, name))
