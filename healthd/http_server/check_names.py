"""The check names that a filter may use."""

from __future__ import annotations

from fnmatch import fnmatchcase

from healthd.gpu_monitoring.gpu_check_registry import GPU_CHECKS
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from healthd.source_monitoring.source_registry import SOURCES

# Checks that are wired explicitly, because they watch the monitoring itself or judge events.
OWN = (
    "xid",
    "sxid",
    "nvml",
    "gpu_count",
    "gpu_presence",
    "kernel_log",
    "beacon",
    "training",
    "preflight",
    "source",
    "check",
    "ledger",
    "outbox",
    "process_start",
)

CHECK_NAMES = tuple(
    sorted(
        {*OWN, *(spec.name for spec in GPU_CHECKS), *(source.check_name for source in SOURCES)}
        | {family.check for family in FAMILIES}
    )
)


def matches_some(pattern: str) -> bool:
    """Return whether a pattern over ``check/code`` names an existing check; its code may be any."""
    check = pattern.partition("/")[0]
    return any(fnmatchcase(name, check) for name in CHECK_NAMES)
