"""Windows of steps are kept packed; whoever asks for a node or a job sees them as they were told."""

from __future__ import annotations

from remediator.api import job_views, record_views
from remediator.engine.decision_engine import StateSnapshot
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.journal_records import NodeRecord
from vocabulary.health import Health
from vocabulary.messages.wire import RankStatus, Report, StepWindow

WINDOWS = tuple(StepWindow(8 * n, 8, 8, 1.5, 0.5, None, 0.25) for n in range(3))


def test_a_node_and_a_job_are_shown_with_the_windows_of_their_ranks() -> None:
    ranks = (
        RankStatus("j", 0, 0, 2, 1, 24, "step", 1.0, windows=WINDOWS),
        RankStatus("j", 0, 1, 2, 2, 24, "step", 1.0),
    )
    report_registry, node = ReportRegistry(), NodeRecord("n1")
    said = Report(
        version=1, node="n1", boot_id="b", agent="a", seq=1, sent_at=1.0, ttl_s=30.0, health=Health.HEALTHY, ranks=ranks
    )
    report_registry.take(said, 1.0)
    snapshot = StateSnapshot(nodes={"n1": node}, findings={}, incidents={}, actions={}, holds={})
    assert record_views.node_view(node, snapshot, report_registry, 1.0).ranks == ranks
    job = job_views.find_job_view(snapshot, report_registry, "j")
    assert job is not None
    assert tuple(rank.status for rank in job.ranks) == ranks
