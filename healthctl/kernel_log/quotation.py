"""Words in a kernel record that are not the kernel's own: what a user named, typed or mounted, shown back. Pure.

The kernel prints names that users choose: of programs that crash and the files they crashed in, of mount options, of
control groups. A job that calls a file ``NVRM: Xid (PCI:0000:3b:00): 79`` and crashes in it must not cost the node.
"""

from __future__ import annotations

import re

# A partial line of a driver may stand before another's words; these may not.
_PROGRAM_TAG = re.compile(r"[^\s\[\]]\[\d{1,10}\]:?\s")
_PATH = re.compile(r"(?:^|[\s=,:])/")  # of a control group, mostly (mm/memcontrol.c)
# Where names of control groups stand bare (cpuset_print_current_mems_allowed prints the last part alone), and of programs.
_KEYED = re.compile(r"\b(?:cpuset|(?:oom_|task_)memcg|task|comm|exe|proctitle)=")
_QUOTES = "'\"`“«‘"
_ENDS = (
    ">",
    "|",
    " in",
    "\nin",
)  # "in FILE[address+size]" may come as a record of its own (mm/memory.c, print_vma_addr)

# A crash's notice: program, then file, both of the user's naming (arch/x86/mm/fault.c, kernel/traps.c; arm64 as well).
# The name has the length that the kernel allows, or a name within an Xid could hide that Xid.
_CRASH = re.compile(
    r"(?:traps: )?(?:\\x[0-9a-f]{2}|.){1,15}?\[\d{1,10}\]:? "
    r"(?:segfault at|trap |general protection|unhandled |bad frame|invalid opcode)",
    re.DOTALL,
)


# What a device or a volume calls itself: anybody may plug one in (drivers/usb/core/hub.c, input.c, hid; fs/btrfs).
_SELF_NAMED = re.compile(
    r"(?:usb \S{1,20}: (?:Product|Manufacturer|SerialNumber): |input: |hid-\S{1,30} |scsi |Bluetooth: "
    r"|BTRFS(?: info)?:? (?:\(\S{1,60}\): )?device label )"
)


def is_quotation(text: str, start: int) -> bool:
    """Whether what stands in `text` (a record without its transport's prefix) from `start` on is only quoted there.

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
