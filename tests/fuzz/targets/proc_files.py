"""The small texts of the host: mounts, pressure, processes, services, the fabric manager's log, an NVMe health log."""

from __future__ import annotations

import contextlib

from healthd.collectors import fabric_manager, nvme, pressure, processes, services
from tests.fuzz.target import Target, text
from vocabulary.hardware import mount_table


def judge(data: bytes) -> None:
    """Never an error, but of a health log that is too short."""
    said = text(data)
    mount_table.parse_mount_table(said)
    pressure.parse_pressure_file("io", said)
    services.parse_systemctl_output(said, frozenset({"nvidia-fabricmanager.service"}))
    fabric_manager.parse_fabric_manager_log(said)
    processes.parse_stat_line(said)
    with contextlib.suppress(ValueError):
        nvme.parse_health_log(data)


TARGET = Target(
    judge,
    (
        b"server:/x /mnt\\040a nfs4 rw,vers=4.2 0 0\n",
        b"some avg10=0.00 avg60=1.25 avg300=0.1 total=123\nfull avg10=0 avg60=NaN total=9\n",
        b"42 (a) b) c) D 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 999\n",
        b"Id=nvidia-fabricmanager.service\nActiveState=failed\nLoadState=loaded\nUnitFileState=enabled\n\n",
        b"[Mar 04 2025 12:00:00] [ERROR] [tid 7] detected NVSwitch fatal error 20034 on fid 0 on NVSwitch pci 0000:c1:00.0\n",
        bytes(512),
    ),
    bytes_max=1024,
)
