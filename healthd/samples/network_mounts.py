"""Network file systems: whether they answer."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


class NetworkMount(NamedTuple):
    """One mount. `trouble` is empty if it answers; else the error's name (ESTALE, …) or "no answer"."""

    mount: str
    device: str
    type: str
    trouble: str

    @property
    def answers(self) -> bool:
        """Whether work that uses it can continue."""
        return not self.trouble


class NetworkMountsSample(NamedTuple):
    """All mounts."""

    mounts: tuple[NetworkMount, ...]


METRICS = (
    Family(
        rows="mounts",
        labels=("mount", "device", "type"),
        metrics=(Metric("healthd_host_network_mount_up", "1 if the file system answers.", "answers"),),
    ),
)
