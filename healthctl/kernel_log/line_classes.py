"""Broad classification of kernel lines: every line of a class, not only the one on which `healthd` raises a finding.

A class's lines come in groups (an AER error prints four to ten), and a reader of a log wants all of them marked. Lines
that the same drivers print when they load belong to no class. The other classes are healthd's own families, which the
parser also checks. Sources: Linux 2.6 to 6.x (drivers/pci/pcie, drivers/edac, drivers/acpi/apei,
arch/x86/kernel/cpu/mce, mm/oom_kill.c, drivers/net/ethernet/mellanox, drivers/infiniband).
"""

from __future__ import annotations

import re
from typing import NamedTuple

from healthctl.kernel_log.quotation import is_quotation
from vocabulary.identity import canonical_pci


class ClassifiedLine(NamedTuple):
    """A classified line. Missing values are empty or None."""

    kind: str
    pci: str = ""
    pid: int | None = None
    process: str = ""


_ADDRESS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-7]"
_DEVICE = rf"(?:[\w.-]{{1,40}} )?{_ADDRESS}(?: [\w.-]{{1,20}})?:\s{{1,8}}"
_GAP = r"(?:\s|\^I|#011){1,8}"  # syslog daemons show a tab as ^I or #011

_OOM = (
    r"(?:Out of [Mm]emory|Memory cgroup out of memory)(?: \([a-z_]{1,40}\))?: (?:OOM victim|[Kk]ill(?:ed|ing)? process)",
    r"(?:Kernel panic - not syncing: )?(?:Out of [Mm]emory(?: and no killable process|: [\w-]{1,20} panic_on_oom)|System is deadlocked on memory)",
    r"Killed process \d{1,10}(?:, UID \d{1,10})?,? \(",
    r"oom-kill: ?constraint=",
    r"(?:(?![\"'`#<>|+*/([])(?:\\x[0-9a-f]{2}|(?!: )[^\n]){1,15}? invoked )?oom-killer: gfp_mask=",
    r"oom_reaper: ",
    r"Tasks? in [^\n]{1,4096}? (?:are going to be killed due to memory\.oom\.group set|killed as a result of limit)",
    r"memory: usage \d{1,16}kB, limit \d{1,20}kB, failcnt",
)
_AER = (
    rf"(?:{_DEVICE})?AER:\s{{1,8}}(?!enabled\b)\S",
    rf"(?:{_DEVICE})?(?:AER: )?PCIe Bus Error: severity=",
    rf"(?:{_DEVICE})?device \[[0-9A-Fa-f]{{4}}:[0-9A-Fa-f]{{4}}\] error status/mask=",
    rf"{_DEVICE}\[ ?\d{{1,2}}\]\s{{1,4}}[A-Z]\w",
    rf"{_DEVICE}(?:TLP Header: |Error of this Agent|can't find device of ID|can't recover \(no error_detected)",
    rf"{_DEVICE}(?:broadcast \w{{1,20}} message|[Dd]evice recovery (?:successful|failed)|found no error details)",
    rf"{_DEVICE}(?:aer_status: 0x|aer_layer=|aer_uncor_severity: 0x|(?:Root|Downstream) Port link has been reset)",
    rf"(?:{_DEVICE})?(?:DPC|EDR): (?!error containment capabilities|enabled\b)[A-Za-z]",
    rf"\+-{{4,8}} PCI-Express Device Error|PCIE Bus Error type{_GAP}:",
    rf"Error Severity{_GAP}: (?:Corrected|Uncorrected)",
    rf"(?:Requester|Receiver|Transmitter|Completer) ID{_GAP}: [0-9a-f]{{4}}\b|VendorID=[0-9a-f]{{4}}h, DeviceID=",
    rf"[A-Z][A-Za-z ]{{3,40}}{_GAP}: (?:First|Multiple)$",
    r"(?:\{\d{1,9}\})?\[Hardware Error\]:\s{1,8}(?:section_type: PCIe|port_type: |slot: \d|secondary_bus: |class_code: |aer_)",
    r"(?:\{\d{1,9}\})?\[Hardware Error\]:\s{1,8}(?:bridge: |vendor_id: |command: 0x|device_id: [0-9a-f]{4}:[0-9a-f]{2}:)",
)
_ECC = (
    r"EDAC (?:\w{1,20} )?MC#?\d{1,3}: (?!Giving out|Removed device)",
    r"(?:EDAC )?\w{1,12}: HANDLING \w{1,8} MEMORY ERROR|EDAC \w{1,20}: New (?:Unc|C)orrected error",
    r"EDAC (?:PCI|DEVICE)\d{0,3}: (?!Giving out|Removed device)[^\n]{0,80}?\b(?:[Ee]rror|[Pp]arity|CE|UE)\b",
    r"Memory failure: 0x|(?:MCE|soft offline:) 0x[0-9a-f]{1,16}: |(?:RAS: )?Soft-offlining pfn",
    r"(?:\{\d{1,9}\}|mce: )?\[Hardware Error\]:[^\n]{0,120}? ECC error",
    r"\{\d{1,9}\}\[Hardware Error\](?!:\s{1,8}section_type: (?:\w{1,10} )?(?:general )?processor)",
    r"\[Hardware Error\]:\s{1,8}(?:Hardware error from APEI|event severity|section_type: memory|physical_address|fru_)",
    r"\[Hardware Error\]:\s{1,8}(?:Error \d{1,3}, type|It has been corrected by h/w|error_type: \d|error_status: |node: ?\d)",
    r"K8 ECC error|Northbridge Error, node \d",
    r"amdgpu (?:\S{1,20} )?[^\n]{0,40}?(?:un)?correctable hardware errors? detected",
)
_MCE = (
    r"(?:mce: )?(?:\{\d{1,9}\})?\[Hardware Error\]: ?",
    r"(?:mce: )?(?:Hardware Error: )?Machine check events logged",
    r"(?:mce: )?CPU ?\d{1,5}: Machine [Cc]heck",
    r"(?:mce: )?CMCI storm ",
    r"mce: (?:Uncorrected|Fatal|Machine|Memory error|\d{1,9} bytes?)[^\n]",
    r"[Mm]achine check(?:: |\s{1,4}in )|MCE: (?:CPU|Kill|The hardware)",
    r"(?:Fatal|Non-fatal|Panicing|Unrecoverable|Timeout: )[^\n]{0,40}?[Mm]achine check",
    r"Kernel panic - not syncing: [^\n]{0,60}?[Mm]achine check",
    r"HARDWARE ERROR",
    r"(?:CPU \d{1,5}: )?Bank \d{1,2}: [0-9a-f]{8,16}\b|Kernel panic(?: - not syncing)?: CPU context corrupt",
)
_IB_QUIET = (
    r"(?![^\n]{0,80}?(?:firmware version|available PCIe bandwidth|Rate limit: |E-Switch: |MLX5E: |enabling device"
    r"|renamed from|Supported tc|registered panic handler|advertised sufficient power|Flow counters|64-bit BAR"
    r"|Mellanox Connect|enabling bus mastering))"
)
_IB = (
    rf"mlx[45]_core {_ADDRESS}{_IB_QUIET}",
    rf"(?:mlx[45]_(?:core|ib|en|\d{{1,3}})|infiniband \S{{1,40}}|ib_\w{{2,12}}|ib\d{{1,3}}|ib[ps]\w{{1,12}}): {_IB_QUIET}\S",
    r"NETDEV WATCHDOG: \S{1,20} \(mlx[45]_",
    r"IPv6: ADDRCONF\(\w{1,20}\): ib\w{1,14}: link ",
)
# Order matters: the name of a killed process may resemble another class, and a network card's AER line is AER.
_CLASSES = tuple(
    (kind, re.compile("|".join(forms)), words)
    for kind, forms, words in (
        ("oom", _OOM, ("ut of ", "oom", "deadlocked", "Killed process", "memory: usage", "killed as")),
        (
            "aer",
            _AER,
            (
                "AER",
                "PCIe",
                "PCI-E",
                "PCIE",
                "status/mask=",
                "]",
                "TLP ",
                "this Agent",
                "DPC:",
                "EDR:",
                "ecover",
                "aer_",
                " ID",
                "ort link",
                "broadcast",
                "Severity",
                ": First",
                ": Multiple",
                "error details",
                "VendorID=",
            ),
        ),
        (
            "ecc",
            _ECC,
            (
                "EDAC ",
                "MEMORY ERROR",
                "emory failure:",
                "[Hardware Error]",
                "offlin",
                "MCE 0x",
                "hardware error",
                "K8 ECC",
                "Northbridge",
            ),
        ),
        (
            "mce",
            _MCE,
            (
                "[Hardware Error]",
                "achine check",
                "achine Check",
                "MCE: ",
                "mce: ",
                "CMCI",
                "HARDWARE ERROR",
                "Bank ",
                "corrupt",
            ),
        ),
        ("ib", _IB, ("mlx", "infiniband", "ib")),
    )
)
_KILLED = re.compile(
    r"(?:[Kk]ill(?:ed)? process|OOM victim) (?P<pid>\d{1,10})(?:, UID \d{1,10})?,?(?: \((?P<name>.{1,60}?)\)(?:[,. ]|$))?"
)
_VICTIM = re.compile(r",task=(?P<name>.{0,60}?),pid=(?P<pid>\d{1,10}),uid=\d{1,10}\s{0,4}$")
_REAPED = re.compile(r"oom_reaper: \w{1,20}(?: to reap)? (?:process |pid:)?(?P<pid>\d{1,10}) \((?P<name>.{1,60}?)\)")
_INVOKED = re.compile(r"(?P<name>.{1,60}?) invoked oom-killer: gfp_mask=")
_SOURCE = re.compile(rf"(?:received|from)(?: from)?:? (?P<pci>{_ADDRESS})")
_PRINTED = re.compile(rf"(?P<pci>{_ADDRESS})")
_BEFORE = re.compile(r"(?:.*[\]:}),-])?\s*", re.DOTALL)


def classify_kernel_line(text: str, *, by_name: bool) -> ClassifiedLine | None:
    """The class of a kernel record without its log prefix; None if it belongs to none.

    If nothing names the kernel as the author (not `by_name`), the pattern must match at the beginning.
    """
    for kind, forms, words in _CLASSES:
        if not any(word in text for word in words):
            continue
        match = forms.search(text) if by_name else forms.match(text)
        if match is None or not _BEFORE.fullmatch(text[: match.start()]) or is_quotation(text, match.start()):
            continue
        return _parse_oom_line(text) if kind == "oom" else ClassifiedLine(kind, parse_pci_address(text))
    return None


def _parse_oom_line(text: str) -> ClassifiedLine:
    for form in (_KILLED, _VICTIM, _REAPED, _INVOKED):
        if match := form.search(text):
            found = match.groupdict()
            return ClassifiedLine(
                "oom", pid=int(found["pid"]) if found.get("pid") else None, process=found["name"] or ""
            )
    return ClassifiedLine("oom")


def parse_pci_address(text: str) -> str:
    """The faulty device if the line names it, else the reporting device."""
    match = _SOURCE.search(text) or _PRINTED.search(text)
    return canonical_pci(match["pci"]) if match else ""
