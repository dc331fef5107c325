"""Which names are one machine: hosts are renamed, and called short here and long there, but their devices have UUIDs. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from preflight.check_context import Device


class KnownMachine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A node under its newest name. `at` is its newest document, `failed` the newest that failed; UTC seconds, 0: none.

    `devices` are UUIDs, sorted; there are none where nobody gives them.
    """

    at: float = 0.0
    failed: float = 0.0
    devices: tuple[str, ...] = ()


def list_device_uuids(devices: Iterable[Device]) -> tuple[str, ...]:
    """What is known of a machine's devices by the world."""
    return tuple(sorted({device.uuid for device in devices if device.uuid}))


class MachineRegistry:
    """Machines by name, asked by their devices."""

    def __init__(self, machines: Mapping[str, KnownMachine]) -> None:
        self.machines = dict(machines)
        self._owners: dict[str, str] = {}
        for name in sorted(machines, key=lambda name: (machines[name].at, name)):
            self._own(name)

    def names(self, devices: Iterable[str]) -> list[str]:
        """The names of machines that share more than half of the devices with these: a spare that moved makes no machine of two."""
        sought = set(devices)
        shared = Counter(self._owners[device] for device in sought if device in self._owners)
        return sorted(
            name for name, count in shared.items() if 2 * count > min(len(sought), len(self.machines[name].devices))
        )

    def put(self, name: str, machine: KnownMachine) -> None:
        """Know a machine by this name, whatever was known by it."""
        self.drop(name)
        self.machines[name] = machine
        self._own(name)

    def drop(self, name: str) -> KnownMachine | None:
        """Know the name no more; what was known."""
        gone = self.machines.pop(name, None)
        for device in gone.devices if gone else ():
            if self._owners.get(device) == name:
                del self._owners[device]
        return gone

    def _own(self, name: str) -> None:
        self._owners.update(dict.fromkeys(self.machines[name].devices, name))
