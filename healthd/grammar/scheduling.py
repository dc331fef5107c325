"""A kernel that stands still, fails, or ends processes (kernel/watchdog.c, hung_task.c, rcu/tree_stall.h, mm/oom_kill.c)."""

from __future__ import annotations

from healthd.grammar.form import Family, form
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_TASK = r"(?P<process>.{1,60}?)"

LOCKUP = Family(
    check="lockup",
    kind=ComponentKind.HOST,
    words=(
        "lockup",
        "LOCKUP",
        "blocked for more than",
        "rcu",
        "Kernel panic",
        "BUG:",
        "kernel BUG at",
        "Oops",
        "general protection fault",
    ),
    forms=(
        form(
            "soft",
            Severity.WARNING,
            "a core did nothing but one task for long",
            rf"soft lockup - CPU#(?P<cpu>\d{{1,5}}) stuck for (?P<seconds>\d{{1,9}})s! \[{_TASK}:(?P<pid>\d{{1,10}})\]",
        ),
        form(
            "hard",
            Severity.ERROR,
            "a core does not even take interrupts",
            r"[Ww]atchdog.{0,20} detected hard LOCKUP on cpu (?P<cpu>\d{1,5})",
        ),
        form(
            "hung_task",
            Severity.INFO,
            "a process waits in the kernel for long",
            rf"INFO: task {_TASK}:(?P<pid>\d{{1,10}}) blocked for more than (?P<seconds>\d{{1,9}}) seconds",
        ),
        form(
            "rcu_stall",
            Severity.WARNING,
            "a core holds up the kernel",
            r"rcu: INFO: \w{1,30} (?:self-)?detected (?:expedited )?stalls?",
        ),
        form("panic", Severity.FATAL, "the kernel gave up", r"Kernel panic - not syncing: (?P<reason>[^\n]{1,120})"),
        form(
            "oops",
            Severity.ERROR,
            "the kernel met a fault of its own",
            r"BUG: (?:unable to handle|kernel NULL pointer)|kernel BUG at (?P<where>\S{1,80})|Oops: |general protection fault(?!.{0,60}\bip:)",
        ),
    ),
)

OOM = Family(
    check="oom",
    kind=ComponentKind.HOST,
    words=("ut of memory", "ut of Memory"),
    forms=(
        form(
            "cgroup",
            Severity.INFO,
            "a job used more memory than it may, and a process of it was ended",
            rf"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d{{1,10}}),? \({_TASK}\)",
        ),
        form(
            "host",
            Severity.INFO,
            "the host ran out of memory, and a process was ended",
            rf"Out of [Mm]emory: Kill(?:ed)? process (?P<pid>\d{{1,10}}),? \({_TASK}\)",
        ),
    ),
)

CPU = Family(
    check="cpu",
    kind=ComponentKind.HOST,
    words=("temperature above threshold", "temperature/speed normal"),
    forms=(
        form(
            "hot",
            Severity.INFO,
            "a core was slowed down for heat",
            r"(?:CPU|Core|Package)\S{0,8}:? .{0,20}temperature above threshold",
        ),
    ),
)
