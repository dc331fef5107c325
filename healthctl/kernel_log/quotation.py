"""Detects text in a kernel record that a user chose, such as file names, and that the kernel only quotes. Pure.

The kernel prints names that users choose: of programs that crash and their files, of mount options, of control groups. A
job that crashes in a file called ``NVRM: Xid (PCI:0000:3b:00): 79`` must not take the node out of service.
"""

from __future__ import annotations

import re

# A driver's partial line may precede another's message; these may not.
_PROGRAM_TAG = re.compile(r"[^\s\[\]]\[\d{1,10}\]:?\s")
_PATH = re.compile(r"(?:^|[\s=,:])/")  # mostly of a control group (mm/memcontrol.c)
# Where names of control groups stand without quotes (cpuset_print_current_mems_allowed prints the last part), and names
# of programs.
_KEYED = re.compile(r"\b(?:cpuset|(?:oom_|task_)memcg|task|comm|exe|proctitle)=")
_QUOTES = "'\"`“«‘"
_ENDS = (
    ">",
    "|",
    " in",
    "\nin",
)  # "in FILE[address+size]" may be a record of its own (mm/memory.c, print_vma_addr)

# A crash message: program, then file, both named by the user (arch/x86/mm/fault.c, kernel/traps.c; also arm64). The
# length limit is the kernel's; without it a name inside an Xid could hide that Xid.
_CRASH = re.compile(
    r"(?:traps: )?(?:\\x[0-9a-f]{2}|.){1,15}?\[\d{1,10}\]:? "
    r"(?:segfault at|trap |general protection|unhandled |bad frame|invalid opcode)",
    re.DOTALL,
)


# Names that a device or volume reports: any user may attach one (drivers/usb/core/hub.c, input.c, hid; fs/btrfs).
_SELF_NAMED = re.compile(
    r"(?:usb \S{1,20}: (?:Product|Manufacturer|SerialNumber): |input: |hid-\S{1,30} |scsi |Bluetooth: "
    r"|BTRFS(?: info)?:? (?:\(\S{1,60}\): )?device label )"
)


def is_quotation(text: str, start: int) -> bool:
    """Whether the text from `start` on in `text` (a record without its log prefix) is only quoted.

    >>> line = "traps: a[7] trap int3 ip:4 sp:7 error:0 in NVRM: Xid (PCI:0000:3b:00): 79[4+1]"
    >>> is_quotation(line, line.index("NVRM"))
    True
    >>> is_quotation("a driver was speaking, NVRM: Xid (PCI:0000:3b:00): 79", 23)
    False
    """
    before = text[:start]
    return (
        any(quote in before for quote in _QUOTES)
        or f"\n{before.rstrip()}".endswith(_ENDS)
        or _PROGRAM_TAG.search(before) is not None
        or _PATH.search(before) is not None
        or _KEYED.search(before) is not None
        or _CRASH.match(text) is not None
        or _SELF_NAMED.match(before) is not None
    )
