"""What stops automation for the whole cluster (the banner of every page), and the figures of the overview. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import NodeRecord
from remediator.model.override_records import OperatorOverride
from remediator.model.scheduler_hold import HoldOwner, SchedulerNodeState
from remediator.model.views import StatusView
from remediator.overrides.cluster_overrides import list_open_silences
from remediator.state.node_index import is_in_cluster
from vocabulary.health import Health
from vocabulary.text.plurals import format_count

CONTROL_PATH = "/control"
MODE_MEANINGS = {
    "approve": "each plan needs an operator's approval",
    "recommend": "plans are shown, not carried out",
    "observe": "decisions are recorded, nothing is carried out",
}
_APPROVE, _ACT = "approve", "act"


class AutomationBlocker(msgspec.Struct, frozen=True):
    """One thing that stops automation. `path` is the page where it can be changed; `everything`: no plan is carried out."""

    what: str
    detail: str = ""
    path: str = ""
    everything: bool = False


class ManualSettings(msgspec.Struct, frozen=True):
    """How many nodes operators have cordoned, and how many silences are in force."""

    cordons: int = 0
    silences: int = 0


class ReportFigures(msgspec.Struct, frozen=True):
    """How many nodes of the cluster operators have taken over, are silent, or report that their health is unknown."""

    held: int = 0
    silent: int = 0
    unknown: int = 0


def list_automation_blockers(status: StatusView, trouble: str, *, leads: bool = True) -> tuple[AutomationBlocker, ...]:
    """What stops automation for the whole cluster, most severe first; empty if nothing does.

    Args:
        status: the cluster's status.
        trouble: why the store cannot be written; empty if it can.
        leads: whether this controller's leadership is confirmed.

    >>> status = StatusView("c", "1", "observe", 1, "p", 0.0, 9, {}, {}, 2, 2, 0, 0, "ok", mode_by="ann")
    >>> [each.what for each in list_automation_blockers(status, "disk full")]
    ['store not writable', 'mode observe', 'isolation budget used up']
    """
    found = []
    if trouble:
        found.append(AutomationBlocker("store not writable", trouble, everything=True))
    elif not leads:
        found.append(AutomationBlocker("leadership not confirmed", "no action is started", everything=True))
    if status.breaker:
        found.append(AutomationBlocker("breaker open", status.breaker, CONTROL_PATH))
    if status.mode != _ACT:
        means = "; ".join(each for each in (MODE_MEANINGS.get(status.mode, ""), status.mode_by) if each)
        found.append(AutomationBlocker(f"mode {status.mode}", means, CONTROL_PATH, everything=status.mode != _APPROVE))
    if status.isolated >= status.isolated_max > 0:
        used = f"{status.isolated} of at most {format_count(status.isolated_max, 'node')} isolated"
        found.append(AutomationBlocker("isolation budget used up", used, CONTROL_PATH))
    return tuple(found)


def summarize_manual_settings(
    holds: Iterable[SchedulerNodeState], operator_overrides: Mapping[str, OperatorOverride], now: float
) -> ManualSettings:
    """Cordons of operators and open silences at `now` (UTC s)."""
    cordons = sum(hold.schedulable is False and hold.owner is HoldOwner.OPERATOR for hold in holds)
    return ManualSettings(cordons, sum(now < silence.until for silence in list_open_silences(operator_overrides)))


def summarize_reports(records: Iterable[NodeRecord], registry: ReportRegistry, now: float) -> ReportFigures:
    """Operator holds and missing reports at `now` (UTC s); nodes that left the cluster do not count."""
    held = silent = unknown = 0
    for record in records:
        if not is_in_cluster(record):
            continue
        held += record.hands_off is not None
        entry = registry.get(record.node)
        if entry is None or now - entry.seen_at > entry.ttl_s:
            silent += 1
        elif entry.health_at(now) is Health.UNKNOWN:
            unknown += 1
    return ReportFigures(held, silent, unknown)
