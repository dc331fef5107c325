"""The services a GPU node needs, as systemd sees them."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


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
