"""NVMe disks (kernel drivers/nvme/host/core.c, pci.c, multipath.c)."""

from __future__ import annotations

from healthd.kernel_log.message_patterns.line_pattern import PatternFamily, make_pattern
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_DISK = r"nvme (?P<place>nvme\d{1,4})"

NVME = PatternFamily(
    check="nvme_log",
    kind=ComponentKind.HOST,
    words=("nvme nvme", "available path", "usable path"),
    forms=(
        make_pattern(
            "timeout",
            Severity.WARNING,
            "a disk does not answer",
            rf"{_DISK}: I/O (?:tag )?\d{{1,5}} [^\n]{{1,100}}? timeout, (?P<then>[a-z ]{{1,40}})",
        ),
        make_pattern(
            "down",
            Severity.ERROR,
            "a disk's controller is down",
            rf"{_DISK}: (?:controller is down; will reset|Device not ready; aborting)",
        ),
        make_pattern(
            "disabled",
            Severity.ERROR,
            "a disk was disabled",
            rf"{_DISK}: (?:Disabling device after reset failure|Removing after probe failure)",
        ),
        make_pattern(
            "no_path",
            Severity.ERROR,
            "no path leads to a disk",
            r"(?:block )?(?P<place>nvme\d{1,4}n\d{1,4}): no (?:available|usable) path",
        ),
    ),
)
