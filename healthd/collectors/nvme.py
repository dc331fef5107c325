"""Reads /sys/class/nvme and each controller's health log: 0.2 ms each. Needs CAP_SYS_ADMIN for the log.

Uses the kernel's own call, since nvme-cli is not on every node.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct
from typing import NamedTuple

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.metric_declaration import Family, Metric

_WHERE = "/sys/class/nvme"
LOG_BYTES = 512
_ADMIN_COMMAND = 0xC048_4E41  # NVME_IOCTL_ADMIN_CMD of linux/nvme_ioctl.h: read and write, 72 bytes, 'N', 0x41
_COMMAND = struct.Struct("<B3xI8xQQIIIIIIIIII")  # struct nvme_passthru_cmd
_GET_LOG_PAGE, _ALL_NAMESPACES, _HEALTH = 0x02, 0xFFFF_FFFF, 0x02
_DEADLINE_MS = 2000
_KELVIN = 273


class NvmeHealth(NamedTuple):
    """The controller's own log (NVM Express Base Specification, log page 02h). Counts cover its whole life."""

    critical_bits: int  # 1 spare low, 2 temperature, 4 unreliable, 8 read-only, 16 its backup power failed
    temperature_c: int
    spare_percent: int
    spare_percent_min: int
    used_percent: int  # of its rated life; may pass 100
    media_errors: int
    unsafe_shutdowns: int


class NvmeDisk(NamedTuple):
    """One controller. `state` is the kernel's: live, resetting, dead and others."""

    name: str
    pci: str
    model: str
    serial: str
    firmware: str
    state: str
    critical_bits: int | None = None
    temperature_c: int | None = None
    spare_percent: int | None = None
    spare_percent_min: int | None = None
    used_percent: int | None = None
    media_errors: int | None = None
    unsafe_shutdowns: int | None = None


class NvmeSample(NamedTuple):
    """All disks."""

    disks: tuple[NvmeDisk, ...]


METRICS = (
    Family(
        rows="disks",
        labels=("name",),
        metrics=(
            Metric("healthd_host_nvme_info", "The disk's identity.", "model", "info"),
            Metric("healthd_host_nvme_info", "", "serial", "info"),
            Metric("healthd_host_nvme_info", "", "firmware", "info"),
            Metric("healthd_host_nvme_info", "", "pci", "info"),
            Metric("healthd_host_nvme_critical_bits", "The disk's warnings, as bits; 0 is none.", "critical_bits"),
            Metric("healthd_host_nvme_temperature_celsius", "Temperature.", "temperature_c"),
            Metric("healthd_host_nvme_spare_ratio", "Remaining spare blocks.", "spare_percent", factor=0.01),
            Metric("healthd_host_nvme_used_ratio", "Share of its rated life.", "used_percent", factor=0.01),
            Metric(
                "healthd_host_nvme_media_errors_total",
                "Media errors: data that could not be read.",
                "media_errors",
                "counter",
            ),
        ),
    ),
)


def read_nvme(machine: MachineAccess, options: Options) -> NvmeSample:  # noqa: ARG001 - every collector takes options
    """Return every controller, with its health where permitted.

    Raises:
        SourceAbsent: there is none.
    """
    names = [name for name in machine.names(_WHERE) if machine.exists(f"{_WHERE}/{name}/state")]
    if not names:
        raise SourceAbsent(f"no controller below {_WHERE}")
    return NvmeSample(tuple(_read_nvme_disk(machine, name) for name in names))


def _read_nvme_disk(machine: MachineAccess, name: str) -> NvmeDisk:
    words = {
        key: machine.text(f"{_WHERE}/{name}/{key}") or "" for key in ("address", "model", "serial", "firmware_rev")
    }
    state = machine.text(f"{_WHERE}/{name}/state") or ""
    log = _read_health_log(machine.path(f"/dev/{name}")) if state == "live" else None
    disk = NvmeDisk(name, words["address"], words["model"], words["serial"], words["firmware_rev"], state)
    return disk._replace(**parse_health_log(log)._asdict()) if log else disk


def parse_health_log(log: bytes) -> NvmeHealth:
    """Parse the first bytes of the log page; all numbers are little-endian.

    Raises:
        ValueError: it is too short.
    """
    if len(log) < LOG_BYTES:
        raise ValueError(f"a health log has {LOG_BYTES} bytes, not {len(log)}")
    return NvmeHealth(
        critical_bits=log[0],
        temperature_c=int.from_bytes(log[1:3], "little") - _KELVIN,
        spare_percent=log[3],
        spare_percent_min=log[4],
        used_percent=log[5],
        unsafe_shutdowns=_decode_counter(log[144:160]),
        media_errors=_decode_counter(log[160:176]),
    )


def _decode_counter(octets: bytes) -> int:
    """Decode a 16-byte counter, limited to the 8 bytes of a message."""
    return min(int.from_bytes(octets, "little"), (1 << 63) - 1)


def _read_health_log(device: str) -> bytes | None:
    """Return the log; None if it cannot be read."""
    buffer = ctypes.create_string_buffer(LOG_BYTES)
    words = (LOG_BYTES // 4 - 1) << 16 | _HEALTH
    command = _COMMAND.pack(
        _GET_LOG_PAGE, _ALL_NAMESPACES, 0, ctypes.addressof(buffer), 0, LOG_BYTES, words, 0, 0, 0, 0, 0, _DEADLINE_MS, 0
    )
    try:
        descriptor = os.open(device, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    try:
        status = fcntl.ioctl(descriptor, _ADMIN_COMMAND, bytearray(command))
    except OSError:
        return None
    finally:
        os.close(descriptor)
    return None if status else buffer.raw
