"""The same record and the same policy give the same decisions, byte for byte; another policy can be tried on it."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tests.timelines.timeline as stories
from remediator.model.pipeline_inputs import PolicyChanged
from remediator.model.plan_steps import Mode
from remediator.pipeline import apply_input
from remediator.playbook.playbook_loader import SHIPPED_FOLDER, load_policy
from remediator.replay.journal_replay import compare_policies, replay_decisions, try_policy
from remediator.state.cluster_state import ClusterState
from remediator.store.journal import Journal
from tests.timelines.timeline import Story
from vocabulary.finding import Severity
from vocabulary.order import OrderState

EVENTS = st.lists(
    st.one_of(
        st.tuples(st.just("finding"), st.sampled_from(["xid/79", "xid/31", "xid/48", "row_remap/pending", "fan/odd"]),
                  st.sampled_from(list(Severity)), st.sampled_from(["n1", "n2", "n3"])),
        st.tuples(st.just("job"), st.sampled_from(["a", "b"]), st.sampled_from(["n1", "n2"])),
        st.tuples(st.just("after"), st.sampled_from([1.0, 200.0, 90_000.0])),
        st.tuples(st.just("cordoned"), st.sampled_from(["n1", "n2", "n3"])),
        st.tuples(st.just("orders"), st.sampled_from(["run_preflight", "reset_gpu", "abort"]),
                  st.sampled_from([OrderState.SUCCEEDED, OrderState.FAILED])),
        st.tuples(st.just("drained"), st.sampled_from(["n1", "n2", "n3"])),
    ),
    max_size=25,
)  # fmt: skip


def told(events: list[tuple[object, ...]]) -> Story:
    story = Story()
    for what, *more in events:
        if what == "finding":
            story.finding(more[0], more[1], more[2])  # type: ignore[arg-type]  # as drawn
        elif what == "job":
            story.job(str(more[0]), str(more[1]))
        elif what == "after":
            story.after(more[0])  # type: ignore[arg-type]  # as drawn
        elif what == "cordoned":
            story.scheduler_answers("cordon", node=str(more[0]))
        elif what == "orders":
            story.orders_end(more[0], more[1])  # type: ignore[arg-type]  # as drawn
        else:
            story.hold(str(more[0]), drained=True)
    return story


@given(EVENTS)
@settings(max_examples=60, deadline=None)
def test_a_record_replays_to_the_same_bytes(events: list[tuple[object, ...]]) -> None:
    story = told(events)
    first = msgspec.json.encode(list(story.decisions.values()))
    assert msgspec.json.encode(replay_decisions(story.inputs, story.rules)) == first
    assert msgspec.json.encode(replay_decisions(story.inputs, story.rules)) == first


@given(EVENTS, st.integers(0, 60))
@settings(max_examples=40, deadline=None)
def test_a_restart_anywhere_changes_no_decision(
    tmp_path_factory: pytest.TempPathFactory, events: list[tuple[object, ...]], cut: int
) -> None:
    story = told(events)
    before, after = story.inputs[:cut], story.inputs[cut:]
    journal = Journal(f"sqlite:///{tmp_path_factory.mktemp('r')}/r.db")
    epoch, lasting = journal.lead(), ClusterState()
    for item in before:
        apply_input(lasting, item, story.rules)
        journal.commit([item], lasting.take_changes(), epoch)
    restarted = journal.load()
    journal.close()
    for hold in lasting.holds.values():
        restarted.put_hold(hold)  # the scheduler is asked anew
    for item in after:
        apply_input(lasting, item, story.rules)
        apply_input(restarted, item, story.rules)
        first, second = lasting.take_changes().decisions, restarted.take_changes().decisions
        assert msgspec.json.encode(first) == msgspec.json.encode(second)


def journalled(tmp_path: Path, story: Story) -> Journal:
    journal = Journal(f"sqlite:///{tmp_path}/r.db")
    epoch, state = journal.lead(), journal.load()
    term = PolicyChanged(at=stories.START, digest=story.rules.policy.digest, source="p", mode=Mode.ACT)
    for item in [term, *story.inputs]:
        apply_input(state, item, story.rules)
        journal.commit([item], state.take_changes(), epoch)
    return journal


def test_the_database_replays_to_what_it_holds(tmp_path: Path) -> None:
    story = Story()
    story.job("train", "n1", "n2")
    story.finding("xid/79", Severity.FATAL)
    story.after(5).scheduler_answers("cordon")
    story.finding("xid/31", Severity.INFO, node="n2")
    story.finding("row_remap/pending", Severity.ERROR, node="n3")
    journal = journalled(tmp_path, story)
    held = [d for i in journal.recent_incidents(100) for d in (journal.incident(i.id) or ([], [], [], []))[2]]
    again = replay_decisions(journal.inputs(), story.rules)
    assert sorted(msgspec.json.encode(d) for d in again) == sorted(msgspec.json.encode(d) for d in held)
    assert len(again) == 2
    journal.close()


def test_another_policy_is_tried_on_the_record(tmp_path: Path) -> None:
    story = Story()
    story.job("train", "n1", "n2")
    story.finding("xid/79", Severity.FATAL)
    story.finding("row_remap/pending", Severity.ERROR, node="n3")
    story.after(7200)
    other = load_policy([SHIPPED_FOLDER / "alternatives" / "restart-first.yaml"])
    a = try_policy(story.inputs, story.rules)
    b = try_policy(story.inputs, stories.settings(policy=other))
    (only,) = compare_policies(a, b)
    assert only.a is not None
    assert only.b is not None
    assert (only.a.answers, only.b.answers) == ((("gpu-lost", "act"),), (("gpu-lost-first", "act"),))
    assert compare_policies(a, a) == []
    assert a.isolations == b.isolations == 2
