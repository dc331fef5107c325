"""PCI addresses in the product's format, without importing the parser and its codec."""

from __future__ import annotations

from typing import Any

_NONE = 0xFFFFFFFF  # NVML's "no such device"


def format_pci_address(info: Any) -> str:
    """Return ``dddd:bb:dd.0`` for an nvmlPciInfo_t, which has no function number; empty if there is no device."""
    if _NONE in (info.domain, info.bus, info.device):
        return ""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"
