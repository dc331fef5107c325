"""Checks whether each network file system answers, each in a process of its own: 2 ms each.

A dead server blocks the caller beyond the reach of SIGKILL: such a process is left behind, one per mount.
"""

from __future__ import annotations

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.network_mounts import NetworkMount, NetworkMountsSample

TYPES = frozenset(
    {"nfs", "nfs4", "lustre", "beegfs", "gpfs", "ceph", "cifs", "smb3", "glusterfs", "fuse.glusterfs", "fuse.ceph"}
    | {"fuse.beegfs", "fuse.juicefs", "wekafs", "panfs", "pvfs2", "vast"}
)
MOUNTS_MAX = 32
DEADLINE_S = 8.0  # for all of them together, so that several dead ones do not look like a dead source


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
