"""PCI addresses as the rest of the product writes them, without the parser and its codec."""

from __future__ import annotations

from typing import Any

_NONE = 0xFFFFFFFF  # NVML's "no such device"


def format_pci_address(info: Any) -> str:
    """``dddd:bb:dd.0`` from an nvmlPciInfo_t, which knows no function; empty if there is no device."""
    if _NONE in (info.domain, info.bus, info.device):
        return ""
    return f"{info.domain:04x}:{info.bus:02x}:{info.device:02x}.0"
