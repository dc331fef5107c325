"""NVMe disks (kernel drivers/nvme/host/core.c, pci.c, multipath.c)."""

from __future__ import annotations

from healthd.grammar.form import Family, form
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_DISK = r"nvme (?P<place>nvme\d{1,4})"

NVME = Family(
    check="nvme_log",
    kind=ComponentKind.HOST,
    words=("nvme nvme", "available path", "usable path"),
    forms=(
        form(
            "timeout",
            Severity.WARNING,
            "a disk does not answer",
            rf"{_DISK}: I/O (?:tag )?\d{{1,5}} [^\n]{{1,100}}? timeout, (?P<then>[a-z ]{{1,40}})",
        ),
        form(
            "down",
            Severity.ERROR,
            "a disk's controller is down",
            rf"{_DISK}: (?:controller is down; will reset|Device not ready; aborting)",
        ),
        form(
            "disabled",
            Severity.ERROR,
            "a disk was given up",
            rf"{_DISK}: (?:Disabling device after reset failure|Removing after probe failure)",
        ),
        form(
            "no_path",
            Severity.ERROR,
            "no path leads to a disk",
            r"(?:block )?(?P<place>nvme\d{1,4}n\d{1,4}): no (?:available|usable) path",
        ),
    ),
)
