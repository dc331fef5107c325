"""Reads /sys/class/nvme and each controller's health log: 0.2 ms each. Needs CAP_SYS_ADMIN for the log.

Uses the kernel's own call, since nvme-cli is not on every node.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import struct

from healthd.collectors.machine_access import MachineAccess, Options, SourceAbsent
from healthd.samples.nvme import NvmeDisk, NvmeHealth, NvmeSample

_WHERE = "/sys/class/nvme"
LOG_BYTES = 512
_ADMIN_COMMAND = 0xC048_4E41  # NVME_IOCTL_ADMIN_CMD of linux/nvme_ioctl.h: read and write, 72 bytes, 'N', 0x41
_COMMAND = struct.Struct("<B3xI8xQQIIIIIIIIII")  # struct nvme_passthru_cmd
_GET_LOG_PAGE, _ALL_NAMESPACES, _HEALTH = 0x02, 0xFFFF_FFFF, 0x02
_DEADLINE_MS = 2000
_KELVIN = 273


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
