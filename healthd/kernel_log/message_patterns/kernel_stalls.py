"""A kernel that stalls, fails, or kills processes (kernel/watchdog.c, hung_task.c, rcu/tree_stall.h, mm/oom_kill.c)."""

from __future__ import annotations

from healthd.kernel_log.message_patterns.line_pattern import PatternFamily, make_pattern
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_TASK = r"(?P<process>.{1,60}?)"
# A name within the first 15 bytes has no blanks or brackets, since a task may itself be called "INFO: task x".
_NAME = r"(?P<process>[\w./:+@-]{1,60}?)"

LOCKUP = PatternFamily(
    check="lockup",
    kind=ComponentKind.HOST,
    words=(
        "lockup",
        "LOCKUP",
        "for more than",
        "rcu",
        "Kernel panic",
        "BUG:",
        "kernel BUG at",
        "Oops",
        "Internal error:",
        "general protection fault",
    ),
    forms=(
        make_pattern(
            "soft",
            Severity.WARNING,
            "a core was stuck in one task for a long time",
            rf"(?:(?:NMI )?watchdog: )?BUG: soft lockup - CPU#(?P<cpu>\d{{1,5}}) stuck for (?P<seconds>\d{{1,9}})s! \[{_TASK}:(?P<pid>\d{{1,10}})\]",
        ),
        make_pattern(
            "hard",
            Severity.ERROR,
            "a core does not handle interrupts",
            r"(?:NMI )?watchdog: (?:CPU\d{1,5}: )?Watchdog detected hard LOCKUP on cpu (?P<cpu>\d{1,5})",
        ),
        make_pattern(
            "hung_task",
            Severity.INFO,
            "a process has been waiting in the kernel for a long time",
            rf"INFO: task {_NAME}:(?P<pid>\d{{1,10}}) blocked(?: in I/O wait)? for more than (?P<seconds>\d{{1,9}}) seconds",
        ),
        make_pattern(
            "rcu_stall",
            Severity.WARNING,
            "a core stalls the kernel",
            r"(?:rcu: )?INFO: rcu\w{1,30} (?:self-)?detected (?:expedited )?stalls?",
        ),
        make_pattern(
            "panic", Severity.FATAL, "the kernel panicked", r"Kernel panic - not syncing: (?P<reason>[^\n]{1,120})"
        ),
        make_pattern(
            "oops",
            Severity.ERROR,
            "the kernel hit a bug of its own",
            r"(?:BUG: (?:unable to handle|kernel NULL pointer)|kernel BUG at (?P<where>[\w./-]{1,80}:\d{1,6})!"
            r"|(?:Oops: ){1,2}(?:[a-z][\w ,:-]{6,100}: )?[0-9a-f]{4} \[#\d{1,6}\] (?:PREEMPT|SMP)|(?:Oops: )?general protection fault[,:] "
            r"|Internal error: [\w :,-]{1,100}: [0-9a-f]{1,16} \[#\d{1,6}\] (?:PREEMPT|SMP))",
        ),
        make_pattern(
            "workers",
            Severity.WARNING,
            "the kernel's own work is stalled",
            r"BUG: workqueue lockup - pool .{1,80} stuck for (?P<seconds>\d{1,9})s!",
        ),
        make_pattern(
            "bad_page",
            Severity.WARNING,
            "the kernel found its memory tables damaged",
            rf"BUG: Bad page (?:state|map|cache) in process {_TASK}\s{{1,2}}p\w{{2}}:(?P<page>[0-9a-f]{{1,20}})",
        ),
    ),
)

OOM = PatternFamily(
    check="oom",
    kind=ComponentKind.HOST,
    words=("ut of memory", "ut of Memory"),
    forms=(
        make_pattern(
            "cgroup",
            Severity.INFO,
            "a job exceeded its memory limit, and one of its processes was killed",
            rf"Memory cgroup out of memory: Kill(?:ed)? process (?P<pid>\d{{1,10}}),? \({_TASK}\)",
        ),
        make_pattern(
            "host",
            Severity.INFO,
            "the host ran out of memory, and a process was killed",
            rf"Out of [Mm]emory(?: \(oom_kill_allocating_task\))?: Kill(?:ed)? process (?P<pid>\d{{1,10}}),? \({_TASK}\)",
        ),
    ),
)

CPU = PatternFamily(
    check="cpu",
    kind=ComponentKind.HOST,
    words=("above threshold",),
    forms=(
        make_pattern(
            "hot",
            Severity.INFO,
            "a core was throttled by heat",
            r"(?:mce: )?CPU\d{1,5}: (?:Core|Package) temperature (?:is )?above threshold, cpu clock",
        ),
    ),
)
