"""Checks whether each network file system answers, each in a process of its own: 2 ms each.

A dead server blocks the caller beyond the reach of SIGKILL: such a process is left behind, one per mount.
"""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric

TYPES = frozenset(
    {"nfs", "nfs4", "lustre", "beegfs", "gpfs", "ceph", "cifs", "smb3", "glusterfs", "fuse.glusterfs", "fuse.ceph"}
    | {"fuse.beegfs", "fuse.juicefs", "wekafs", "panfs", "pvfs2", "vast"}
)
MOUNTS_MAX = 32
DEADLINE_S = 8.0  # for all of them together, so that several dead ones do not look like a dead source


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


def read_network_mounts(machine: MachineAccess, options: Options) -> NetworkMountsSample:  # noqa: ARG001 - every collector takes options
    """Return every network mount.

    Raises:
        SourceAbsent: there is none, or no table of mounts.
    """
    mounts = {mount.point: mount for mount in machine.mounts() if mount.type in TYPES}
    if not mounts:
        raise SourceAbsent("no network file system is mounted")
    asked = list(mounts.values())[:MOUNTS_MAX]
    troubles = machine.answers([mount.point for mount in asked], DEADLINE_S)
    return NetworkMountsSample(
        tuple(NetworkMount(mount.point, mount.device, mount.type, troubles[mount.point]) for mount in asked)
    )
