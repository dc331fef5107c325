"""Local file systems: room, and whether they are writable."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.metric_declaration import Family, Metric


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
