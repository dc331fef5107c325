"""Which kernel parameters change how GPUs and adapters perform or fail."""

from __future__ import annotations

_TELLING = (
    "iommu",
    "intel_iommu",
    "amd_iommu",
    "pci",
    "pcie_aspm",
    "numa_balancing",
    "transparent_hugepage",
    "mitigations",
)


def select_relevant_options(cmdline: str) -> str:
    """Return the relevant parameters, in alphabetical order."""
    return " ".join(sorted(word for word in cmdline.split() if word.partition("=")[0] in _TELLING))
