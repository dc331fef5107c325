"""Queries systemd for the state of some units: one `systemctl show`, 10 ms. Absent where systemd does not run."""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric

UNITS = (
    "nvidia-fabricmanager.service",
    "nvidia-persistenced.service",
    "nvidia-imex.service",
    "nvidia-dcgm.service",
    "slurmd.service",
    "munge.service",
    "kubelet.service",
    "containerd.service",
)
DEADLINE_S = 10.0
_ENABLED = ("enabled", "enabled-runtime")


class Service(NamedTuple):
    """One unit. `wanted`: it is enabled, or the configuration names it."""

    name: str
    wanted: bool
    state: str  # active, failed, inactive, activating, …

    @property
    def active(self) -> bool:
        """Whether it runs."""
        return self.state == "active"


class ServicesSample(NamedTuple):
    """The installed units."""

    services: tuple[Service, ...]


METRICS = (
    Family(
        rows="services",
        labels=("name",),
        metrics=(
            Metric("healthd_host_service_active", "1 if the service runs.", "active"),
            Metric("healthd_host_service_wanted", "1 if it is enabled, or named in the configuration.", "wanted"),
        ),
    ),
)


def read_services(machine: MachineAccess, options: Options) -> ServicesSample:
    """Return the installed units; option `units` names others, which are then required.

    Raises:
        SourceAbsent: systemd does not run, or knows none of them.
    """
    named = tuple(unit if "." in unit else f"{unit}.service" for unit in options.get("units", ()))
    units = named or UNITS
    if not machine.exists("/run/systemd/system"):
        raise SourceAbsent("systemd does not run here")
    command = ["systemctl", "show", "--property=Id,LoadState,ActiveState,UnitFileState", "--", *units]
    code, output = machine.run(command, DEADLINE_S)
    if code != 0:
        raise RuntimeError(f"systemctl ended with {code}")
    services = parse_systemctl_output(output, wanted=frozenset(named))
    if not services:
        raise SourceAbsent(f"none of {', '.join(units)} is installed")
    return ServicesSample(services)


def parse_systemctl_output(text: str, wanted: frozenset[str]) -> tuple[Service, ...]:
    """Parse one block per unit, of `Key=value` lines, separated by blank lines (systemctl(1))."""
    services = []
    for block in text.split("\n\n"):
        keys = dict(line.partition("=")[::2] for line in block.splitlines() if "=" in line)
        name = keys.get("Id", "")
        if not name or (keys.get("LoadState") == "not-found" and name not in wanted):
            continue
        services.append(
            Service(
                name=name.removesuffix(".service"),
                wanted=name in wanted or keys.get("UnitFileState") in _ENABLED,
                state=keys.get("ActiveState", "unknown"),
            )
        )
    return tuple(services)
