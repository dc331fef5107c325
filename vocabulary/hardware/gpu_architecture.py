"""GPU generations, derived from NVML's product name. Source: NVIDIA's product pages."""

from __future__ import annotations

import enum
import re


class Architecture(str, enum.Enum):
    """Generations of data-centre GPUs between which faults and repairs differ."""

    VOLTA = "volta"
    TURING = "turing"
    AMPERE = "ampere"
    ADA = "ada"
    HOPPER = "hopper"
    BLACKWELL = "blackwell"


_NAMES = (
    (Architecture.BLACKWELL, r"G?B(?:100|102|200|300)|RTX PRO [456]000"),
    (Architecture.HOPPER, r"GH200|H(?:20|100|200|800)"),
    (Architecture.ADA, r"L(?:4|20|40S?)|RTX (?:4000|4500|5000|6000) Ada"),
    (Architecture.AMPERE, r"A(?:2|10|10G|16|30|40|100|800)"),
    (Architecture.TURING, r"T4G?"),
    (Architecture.VOLTA, r"V100S?"),
)
_PATTERNS = tuple((kind, re.compile(rf"(?<![A-Za-z0-9])(?:{words})(?![A-Za-z0-9])")) for kind, words in _NAMES)


def architecture_of(product: str) -> Architecture | None:
    """Return the generation of a product by its NVML name; None if it is not listed.

    >>> architecture_of("NVIDIA H100 80GB HBM3")
    <Architecture.HOPPER: 'hopper'>
    """
    return next((kind for kind, pattern in _PATTERNS if pattern.search(product)), None)
