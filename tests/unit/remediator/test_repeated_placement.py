from __future__ import annotations

from remediator.decisions.decision_settings import DecisionSettings
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.model.journal_records import Incident, JobRef
from remediator.model.pipeline_inputs import PlacementChanged
from remediator.model.plan_steps import Mode
from remediator.pipeline import _fold_input
from remediator.playbook.playbook_loader import SHIPPED, load_policy
from remediator.state.cluster_state import ClusterState

JOBS = (JobRef("j", 0),)


def test_a_placement_that_is_only_said_again_concerns_no_other_node() -> None:
    settings, state = (
        DecisionSettings(policy=load_policy([SHIPPED]), mode=Mode.RECOMMEND, budget=IsolationBudget()),
        ClusterState(),
    )
    state.put_incident(Incident(id="i2", node="n2", title="...", opened_at=1.0))
    said = PlacementChanged(at=2.0, node="n1", jobs=JOBS)
    assert _fold_input(state, said, settings) is None, "an order under way may have to reach the node too"
    assert _fold_input(state, said, settings) == {"n1"}, "as every node says it to a new leader"
