"""The subject of a finding: nodes and components.

A GPU has three names: UUID (stable, the key), PCI address (what the kernel log prints), index (what people use; it may
change over a reboot). PCI addresses have one canonical form everywhere: ``dddd:bb:dd.f``, lower case.
"""

from __future__ import annotations

import enum
import re

import msgspec

_PCI = re.compile(
    r"(?:PCI:)?(?P<domain>[0-9A-Fa-f]{1,8}):(?P<bus>[0-9A-Fa-f]{1,2}):(?P<device>[0-9A-Fa-f]{1,2})(?:\.(?P<function>[0-7]))?"
)
NODE_NAME = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,251}[A-Za-z0-9])?")


class ComponentKind(str, enum.Enum):
    """The kinds of component a finding can be about."""

    GPU = "gpu"
    NVLINK = "nvlink"
    NVSWITCH = "nvswitch"
    NIC_PORT = "nic_port"
    PCIE = "pcie"
    HOST = "host"
    RANK = "rank"
    AGENT = "agent"


class Component(msgspec.Struct, frozen=True, omit_defaults=True):
    """The subject of a finding. `name` is its stable key within the node (a GPU's UUID when known)."""

    kind: ComponentKind
    name: str = ""
    pci: str = ""
    index: int | None = None

    @property
    def key(self) -> str:
        """Unique within a node; a GPU known only by its address is keyed by it."""
        return f"{self.kind.value}:{self.name or self.pci or 'all'}"

    def __str__(self) -> str:
        if self.kind is ComponentKind.GPU and self.index is not None:
            return f"GPU {self.index} ({self.pci or self.name})"
        return f"{self.kind.value} {self.name or self.pci}".strip()


def canonical_pci(text: str) -> str:
    """Convert any printed PCI address to ``dddd:bb:dd.f`` (function 0 if none is printed).

    >>> canonical_pci("PCI:0000:3B:00")
    '0000:3b:00.0'
    >>> canonical_pci("00000000:86:00.0")
    '0000:86:00.0'

    Raises:
        ValueError: the text is no PCI address.
    """
    match = _PCI.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"not a PCI address: {text!r} (expected something like 0000:3b:00.0)")
    domain, bus, device = (int(match[part], 16) for part in ("domain", "bus", "device"))
    return f"{domain:04x}:{bus:02x}:{device:02x}.{match['function'] or '0'}"


def require_node_name(text: str) -> str:
    """Return `text` if it is a valid node name.

    Raises:
        ValueError: empty, over 253 characters, or with anything but letters, digits, '.', '_' and '-'.
    """
    if NODE_NAME.fullmatch(text) is None:
        raise ValueError(f"not a node name: {text!r} (letters, digits, '.', '_', '-'; at most 253)")
    return text
