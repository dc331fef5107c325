"""All finding kinds, as check/code with their severities: from the Xid catalogue, healthd's checks and verdicts."""

from __future__ import annotations

from healthd.checks import preflight_result_checks
from healthd.http_server.check_names import CHECK_NAMES
from healthd.kernel_log.message_patterns.pattern_families import FAMILIES
from remediator.playbook.policy_linter import OPEN, VERDICTS
from vocabulary.fault_catalogue.catalogue import Catalogue
from vocabulary.finding import Severity

_FAULT_SEVERITIES = frozenset({Severity.WARNING, Severity.ERROR, Severity.FATAL})
_BY_LINE = frozenset(Severity)  # the log line, not the number, determines the severity
_DECIDED_BY_LINE = (74, *range(144, 151), 154)


def known_kinds(catalogue: Catalogue) -> dict[str, frozenset[Severity]]:
    """Kinds by name; a check without a list of codes is ``check/*``."""
    known = {f"xid/{code}": frozenset({entry.severity}) for code, entry in catalogue.xids.items()}
    known |= {f"xid/{code}": _BY_LINE for code in _DECIDED_BY_LINE}
    known["xid/fallen_off_bus"] = frozenset({Severity.FATAL})
    known |= {
        f"sxid/{code}": frozenset({entry.severity, Severity.FATAL, Severity.WARNING})
        for code, entry in catalogue.sxids.items()
    }
    for family in FAMILIES:
        for form in family.forms:
            kind = f"{family.check}/{form.code}"
            known[kind] = known.get(kind, frozenset()) | {form.severity}
    known |= {
        f"{preflight_result_checks.CHECK}/{code}": frozenset({severity})
        for code, severity in preflight_result_checks.SEVERITIES.items()
    }
    listed = {kind.partition("/")[0] for kind in known}
    known |= {f"{check}/{OPEN}": _FAULT_SEVERITIES for check in CHECK_NAMES if check not in listed}
    known["node/silent"] = frozenset({Severity.WARNING})  # raised by the controller itself
    known |= {f"{verdict}/{OPEN}": frozenset(Severity) for verdict in VERDICTS}
    return known
