"""Reads the mount table, and each local file system's room: 20 µs each.

Network file systems are a separate source, since those may hang.
"""

from __future__ import annotations

from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options
from healthd.samples.metric_declaration import Family, Metric
from vocabulary.hardware.mount_table import Mount

LOCAL = frozenset({"ext2", "ext3", "ext4", "xfs", "btrfs", "f2fs", "zfs", "vfat"})
VOLATILE = frozenset({"tmpfs", "overlay"})
WHERE_VOLATILE_COUNTS = frozenset({"/", "/tmp", "/dev/shm"})  # noqa: S108 - a full one stops jobs; nothing is made there
MOUNTS_MAX = 64


class Disk(NamedTuple):
    """One mounted file system. `read_only` is the kernel's current state of it."""

    mount: str
    device: str
    type: str
    read_only: bool
    size_bytes: int | None
    free_bytes: int | None  # for users
    inodes: int | None
    inodes_free: int | None


class DisksSample(NamedTuple):
    """All local file systems that hold data."""

    disks: tuple[Disk, ...]


METRICS = (
    Family(
        rows="disks",
        labels=("mount", "device", "type"),
        metrics=(
            Metric("healthd_host_disk_size_bytes", "Size of the file system.", "size_bytes"),
            Metric("healthd_host_disk_free_bytes", "Space available to users.", "free_bytes"),
            Metric("healthd_host_disk_inodes", "Total inodes.", "inodes"),
            Metric("healthd_host_disk_inodes_free", "Free inodes.", "inodes_free"),
            Metric("healthd_host_disk_read_only", "1 if it is read-only.", "read_only"),
        ),
    ),
)


def read_disks(machine: MachineAccess, options: Options) -> DisksSample:  # noqa: ARG001 - every collector takes options
    """Return every local file system that holds data, each device once: bind mounts repeat it.

    Raises:
        SourceAbsent: there is no table of mounts.
    """
    found: dict[str, Disk] = {}
    for mount in machine.mounts():
        key = mount.point if mount.type in VOLATILE else mount.device
        if _is_data_mount(mount) and key not in found and len(found) < MOUNTS_MAX:
            found[key] = _read_disk(machine, mount)
    return DisksSample(tuple(found.values()))


def _is_data_mount(mount: Mount) -> bool:
    return mount.type in LOCAL or (mount.type in VOLATILE and mount.point in WHERE_VOLATILE_COUNTS)


def _read_disk(machine: MachineAccess, mount: Mount) -> Disk:
    space = machine.space(mount.point)
    return Disk(
        mount=mount.point,
        device=mount.device,
        type=mount.type,
        read_only="ro" in mount.options,
        size_bytes=space and space.f_blocks * space.f_frsize,
        free_bytes=space and space.f_bavail * space.f_frsize,
        inodes=(space and space.f_files) or None,  # some file systems create inodes as needed and report 0
        inodes_free=space.f_favail if space and space.f_files else None,
    )
