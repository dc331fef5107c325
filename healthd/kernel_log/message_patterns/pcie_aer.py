"""PCIe errors (kernel drivers/pci/pcie/aer.c, dpc.c, hotplug/pciehp_ctrl.c).

Only the line that names device and severity counts: "error received" before it and the registers after it repeat the
same event.
"""

from __future__ import annotations

from healthd.kernel_log.message_patterns.line_pattern import PCI, PatternFamily, make_pattern
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_DEVICE = rf"[\w.-]{{1,40}} {PCI}: "  # dev_printk: driver and address
_TYPE = r", type=(?P<layer>[A-Za-z ]{1,40})"

AER = PatternFamily(
    check="pcie_aer",
    kind=ComponentKind.PCIE,
    words=("PCIe Bus Error", "AER:", "DPC:", "pciehp", "device inaccessible"),
    forms=(
        make_pattern(
            "corrected",
            Severity.INFO,
            "PCIe error, corrected",
            rf"{_DEVICE}(?:AER: )?PCIe Bus Error: severity=Correct(?:ed|able){_TYPE}",
        ),
        make_pattern(
            "nonfatal",
            Severity.WARNING,
            "uncorrectable PCIe error",
            rf"{_DEVICE}(?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Non-Fatal\){_TYPE}",
        ),
        make_pattern(
            "fatal",
            Severity.ERROR,
            "fatal PCIe error: the link was reset",
            rf"{_DEVICE}(?:AER: )?PCIe Bus Error: severity=Uncorrect(?:ed|able) \(Fatal\){_TYPE}",
        ),
        make_pattern(
            "unrecovered",
            Severity.ERROR,
            "a PCIe device did not recover",
            rf"{_DEVICE}AER: [Dd]evice recovery failed",
        ),
        make_pattern(
            "contained",
            Severity.ERROR,
            "a PCIe port was disabled to contain an error",
            rf"{_DEVICE}DPC: containment event",
        ),
        make_pattern(
            "link_down",
            Severity.WARNING,
            "a PCIe slot lost its link",
            rf"{_DEVICE}pciehp: Slot\((?P<slot>[\w-]{{1,20}})\): Link Down",
        ),
        make_pattern(
            "removed",
            Severity.WARNING,
            "a PCIe card is missing",
            rf"{_DEVICE}pciehp: Slot\((?P<slot>[\w-]{{1,20}})\): Card not present",
        ),
        make_pattern(
            "inaccessible",
            Severity.ERROR,
            "a PCIe device does not answer",
            rf"{_DEVICE}Unable to change power state from \S{{1,12}} to D0, device inaccessible",
        ),
    ),
)
