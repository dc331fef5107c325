"""Crashes of a user's programs (kernel arch/x86/mm/fault.c, kernel/traps.c): recorded, never blamed on the node.

The user chooses the program's name and the library's file, so these lines prove nothing.
"""

from __future__ import annotations

from healthd.kernel_log.message_patterns.line_pattern import PatternFamily, make_pattern
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

PROGRAMS = PatternFamily(
    check="program_crash",
    kind=ComponentKind.HOST,
    words=("in libnccl",),
    forms=(
        make_pattern(
            "libnccl",
            Severity.INFO,
            "a program crashed inside NCCL's library",
            r"(?:traps: )?(?P<process>.{1,15}?)\[(?P<pid>\d{1,10})\]:? (?:segfault at |general protection fault |trap )"
            r".{1,120}? in (?P<library>libnccl[\w.-]{0,60})\[",
        ),
    ),
    about_programs=True,
)
