"""Errors of the host's memory and cores (kernel drivers/edac, arch/x86/kernel/cpu/mce, drivers/acpi/apei, mm)."""

from __future__ import annotations

from healthd.kernel_log.message_patterns.line_pattern import PatternFamily, make_pattern
from vocabulary.finding import Severity
from vocabulary.identity import ComponentKind

_HARDWARE = r"(?:mce: )?(?:\{\d{1,9}\})?\[Hardware Error\]: {1,2}"
# edac_mc.c; the error's text holds letters only, since a task may be called "EDAC MC0: 1 UE "
_EDAC = r"EDAC (?P<controller>MC\d{1,3}): (?P<errors>\d{1,9})"
_WHERE = r"(?: (?P<error>[A-Za-z][\w /-]{0,80}?))? on (?P<place>[^(]{1,80}?) \("

MEMORY = PatternFamily(
    check="host_memory",
    kind=ComponentKind.HOST,
    words=("EDAC ", "[Hardware Error]", "Memory failure:", "Machine Check", "Machine check"),
    forms=(
        make_pattern(
            "corrected",
            Severity.INFO,
            "memory error, corrected",
            rf"{_EDAC} CE{_WHERE}",
        ),
        make_pattern(
            "uncorrected",
            Severity.ERROR,
            "memory returned wrong data",
            rf"{_EDAC} UE{_WHERE}",
        ),
        make_pattern(
            "page_lost",
            Severity.ERROR,
            "a memory page could not be taken offline",
            r"Memory failure: (?P<page>0x[0-9a-f]{1,16}): recovery action for (?!already)(?P<kind>[^:]{1,60}): (?:Failed|Ignored)",
        ),
        make_pattern(
            "page_offline",
            Severity.WARNING,
            "a memory page was taken offline",
            r"Memory failure: (?P<page>0x[0-9a-f]{1,16}): recovery action for (?P<kind>[^:]{1,60}): (?:Recovered|Delayed)",
        ),
        make_pattern(
            "machine_check",
            Severity.ERROR,
            "a core stopped with a machine check",
            rf"(?:{_HARDWARE})?CPU (?P<cpu>\d{{1,5}}): Machine Check Exception",
        ),
        make_pattern(
            "core_uncorrected",
            Severity.ERROR,
            "a core had an uncorrectable error",
            rf"{_HARDWARE}(?:System Fatal error|Uncorrected, software \w{{1,20}} error)\.",
        ),
        make_pattern(
            "core_deferred",
            Severity.WARNING,
            "damaged data was found before a program used it",
            rf"{_HARDWARE}Deferred error, no action required",
        ),
        make_pattern(
            "core_corrected",
            Severity.INFO,
            "a core had a corrected error",
            rf"{_HARDWARE}Corrected error, no action required",
        ),
        make_pattern(
            "machine_check_logged",
            Severity.INFO,
            "a machine check was logged",
            rf"(?:mce: )?(?:{_HARDWARE})?Machine check events logged",
        ),
        make_pattern(
            "firmware_fatal",
            Severity.ERROR,
            "the firmware reports a fatal hardware error",
            rf"{_HARDWARE}event severity: fatal",
        ),
        make_pattern(
            "firmware_recoverable",
            Severity.WARNING,
            "the firmware reports a hardware error that was survived",
            rf"{_HARDWARE}event severity: recoverable",
        ),
        make_pattern(
            "firmware_corrected",
            Severity.INFO,
            "the firmware reports a hardware error, corrected",
            rf"{_HARDWARE}event severity: corrected",
        ),
    ),
)
