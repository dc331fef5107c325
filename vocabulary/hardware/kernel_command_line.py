"""Which words of the kernel's command line change how GPUs and adapters perform or fail."""

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
    """The words that matter here, in order of the alphabet."""
    return " ".join(sorted(word for word in cmdline.split() if word.partition("=")[0] in _TELLING))
