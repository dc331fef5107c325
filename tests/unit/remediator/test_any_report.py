"""Whatever a report that was let in says, both databases take what it led to, and read it again."""

from __future__ import annotations

import itertools
import string

from hypothesis import HealthCheck, example, given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st

from remediator.api.report_handlers import _decode_report
from remediator.decisions.step_context import target_id_part
from remediator.fleet.report_registry import ReportRegistry
from remediator.model.pipeline_inputs import FindingsReported, PlacementChanged
from remediator.pipeline import apply_input
from remediator.state.cluster_state import ClusterState
from remediator.store.journal import Journal
from tests.timelines.timeline import START, settings
from vocabulary.finding import Finding, Severity, finding_id
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.message_bounds import INT_MAX, MOMENT_MAX
from vocabulary.messages.wire import FindingChange, RankStatus, Report, encode_message

NODES = 4  # enough to share a cause
ODD = st.one_of(
    st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=8),
    st.sampled_from(["x" * 64, "ü" * 64, "/../?#%", "\n", "💥" * 64]),
)
NUMBER = st.one_of(st.integers(-INT_MAX, INT_MAX), st.sampled_from([0, 2**31, INT_MAX, -INT_MAX]))
TIME = st.floats(0, MOMENT_MAX)
_fleet = itertools.count()


def reported(node: str, job: str, text: str, number: int, at: float) -> bytes:
    """A report as any process on a node could make one, with a fault that asks for everything we can do."""
    gpu = Component(ComponentKind.GPU, text, text, number)
    fault = Finding(
        id=finding_id(node, "xid", "79", gpu, text), node=node, check="xid", code="79", component=gpu,
        severity=Severity.FATAL, summary=text, first_seen=at, last_seen=at, origin=text, boot_id=text,
        count=max(1, number), evidence={text: text, "number": number},
    )  # fmt: skip
    odd = Finding(
        id=finding_id(node, text, text, gpu, text), node=node, check=text, code=text, component=gpu,
        severity=Severity.ERROR, summary=text, first_seen=at, last_seen=at, origin=text,
    )  # fmt: skip
    rank = RankStatus(job, number, number, number, number, number, text, at)
    changes = tuple(FindingChange(seq, finding) for seq, finding in enumerate((fault, odd), 1))
    return encode_message(
        Report(
            version=1, node=node, boot_id=text, agent=text, seq=1, sent_at=at, ttl_s=30.0, health=Health.UNHEALTHY,
            changes=changes, active=(fault, odd), ranks=(rank,),
        )
    )  # fmt: skip


@hypothesis_settings(
    max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(job=ODD, text=ODD, number=NUMBER, at=TIME)
@example(job="x" * 255, text="t", number=1, at=1.0)
@example(job="💥" * 255, text="💥" * 64, number=INT_MAX, at=MOMENT_MAX)
def test_no_report_that_is_let_in_can_make_a_commit_fail(
    database: str, job: str, text: str, number: int, at: float
) -> None:
    journal, state, rules = Journal(database), ClusterState(), settings()
    epoch = journal.lead()
    fleet = next(_fleet)
    for node in (f"n{fleet}-{n}" for n in range(NODES)):
        report = _decode_report(reported(node, job, text, number, at), node)
        _, entry = ReportRegistry().take(report, START)
        apply_input(state, PlacementChanged(at=START, node=node, jobs=entry.jobs), rules)
        found = tuple(change.finding for change in report.changes)
        news = FindingsReported(at=START, node=node, boot_id=report.boot_id, changes=found, active=report.active)
        apply_input(state, news, rules)
        journal.commit([news], state.take_changes(), epoch)
    again = journal.load()
    assert {name: again.nodes[name] for name in state.nodes} == state.nodes
    assert {name: again.incidents[name] for name in state.incidents} == state.incidents
    assert {name: again.actions[name] for name in state.actions} == state.actions
    assert any(action.order for action in state.actions.values()), "the ranks are told"
    journal.close()


def test_names_in_ids_are_legible_where_they_can_be_and_always_apart() -> None:
    plain = "gpu-node-17.train_7.0"
    assert target_id_part(plain) == plain
    odd = ["a/b", "a?b", "a\0b", "a b", "ä", "x" * 301, "x" * 302]
    ids = [target_id_part(each) for each in odd]
    assert len(set(ids)) == len(odd)
    for each in ids:
        assert len(each) < 100
        assert set(each) <= set(string.ascii_letters + string.digits + "._-~")
