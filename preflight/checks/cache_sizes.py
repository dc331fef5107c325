"""Cache sizes of a device."""

from __future__ import annotations

from pathlib import Path

CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}


def read_host_cache_bytes(caches: Path = CACHES) -> int:
    """The CPU's largest cache, in bytes; 0 if the kernel does not report it."""
    return max((_read_cache_bytes(size) for size in caches.glob("index*/size")), default=0)


def _read_cache_bytes(size: Path) -> int:
    try:
        text = size.read_text().strip()
    except OSError:
        return 0
    number, unit = text[:-1], text[-1:]
    return int(number) * _UNITS[unit] if number.isdigit() and unit in _UNITS else 0
