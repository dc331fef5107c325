"""Whether healthd can start its programs. A node short of descriptors, processes or memory limits monitoring."""

from __future__ import annotations

import errno
from collections.abc import Iterable

from healthd.findings.facts import LevelFact, Raise
from healthd.samples.start_failure import StartFailure
from vocabulary.finding import Severity
from vocabulary.identity import Component, ComponentKind

CHECK = "process_start"

_TODO = {
    errno.EMFILE: "All of healthd's file descriptors are in use{limit}: raise LimitNOFILE= in its unit, or restart it",
    errno.ENFILE: "The machine has reached its limit of open files: raise the sysctl fs.file-max",
    errno.EAGAIN: (
        "The limit on processes is reached{limit}: raise TasksMax= and LimitNPROC= in healthd's unit, "
        "or the sysctls kernel.pid_max and kernel.threads-max"
    ),
    errno.ENOMEM: "Memory is short: raise MemoryMax= in healthd's unit, or free memory on the node",
}
_TODO_ELSE = "Check that it is installed, and that healthd may run it"


def judge_start_failures(failures: Iterable[StartFailure], at: float) -> list[LevelFact]:
    """Return one finding per program that could not be started; healthd retries by itself."""
    return [
        Raise(
            check=CHECK,
            code="failed",
            component=Component(ComponentKind.AGENT, name=failure.program),
            severity=Severity.WARNING,
            summary=f"healthd cannot start {failure.program}: {failure.reason}. {_describe_remedy(failure)}"[:300],
            at=at,
            evidence={"errno": failure.errno, **({} if failure.limit is None else {"limit": failure.limit})},
        )
        for failure in failures
    ]


def _describe_remedy(failure: StartFailure) -> str:
    limit = "" if failure.limit is None else f" ({failure.limit})"
    return _TODO.get(failure.errno, _TODO_ELSE).format(limit=limit)
