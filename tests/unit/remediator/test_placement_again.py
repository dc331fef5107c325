from __future__ import annotations

from remediator.decide.budget import Budget
from remediator.decide.settings import Settings
from remediator.model.inputs import PlacementChanged
from remediator.model.plan import Mode
from remediator.model.records import Incident, JobRef
from remediator.pipeline import _apply
from remediator.playbook.load import SHIPPED, load_policy
from remediator.state import ClusterState

JOBS = (JobRef("j", 0),)


def test_a_placement_that_is_only_said_again_concerns_no_other_node() -> None:
    settings, state = Settings(policy=load_policy([SHIPPED]), mode=Mode.RECOMMEND, budget=Budget()), ClusterState()
    state.put_incident(Incident(id="i2", node="n2", title="...", opened_at=1.0))
    said = PlacementChanged(at=2.0, node="n1", jobs=JOBS)
    assert _apply(state, said, settings) == {"n2"}, "an order under way may have to reach the node too"
    assert _apply(state, said, settings) == {"n1"}, "as every node says it to a new leader"
