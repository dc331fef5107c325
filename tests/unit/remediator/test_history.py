from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remediator.history import History, Subject
from remediator.model.occurrence import Occurrence
from remediator.model.rules import WINDOW_MAX_S, Clause, Distinct, Scope

NODES, JOBS, KINDS = (
    st.sampled_from(["n1", "n2"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["xid/13", "xid/31"]),
)
OCCURRENCES = st.lists(
    st.builds(
        Occurrence,
        at=st.floats(0, 1000),
        kind=KINDS,
        node=NODES,
        component=st.sampled_from(["gpu:0", "gpu:1"]),
        jobs=st.lists(JOBS, max_size=2, unique=True).map(tuple),
        job_nodes=st.integers(0, 3),
        incident=st.sampled_from(["", "i1", "i2"]),
        injected=st.booleans(),
        count=st.integers(1, 3),
    ),
    max_size=30,
)
SUBJECT = Subject("xid/13", "n1", "gpu:0", ("a", "b"), incident="i1")


def history(occurrences: list[Occurrence]) -> History:
    made = History()
    for occurrence in occurrences:
        made.add(occurrence)
    return made


@given(OCCURRENCES, st.floats(1, 1000))
def test_counts_are_what_a_plain_look_at_everything_says(occurrences: list[Occurrence], within: float) -> None:
    now = 1000.0
    made = history(occurrences)
    recent = [
        o for o in occurrences if o.at > now - within and o.kind == "xid/13" and o.incident != "i1" and not o.injected
    ]

    def count(scope: Scope, distinct: Distinct) -> int:
        return made.count(Clause(within_s=within, at_least=1, scope=scope, distinct=distinct), SUBJECT, now)

    here = [o for o in recent if o.node == "n1"]
    assert count(Scope.NODE, Distinct.EVENTS) == sum(o.count for o in here)
    assert count(Scope.COMPONENT, Distinct.EVENTS) == sum(o.count for o in here if o.component == "gpu:0")
    assert count(Scope.CLUSTER, Distinct.NODES) == len({o.node for o in recent})
    assert count(Scope.CLUSTER, Distinct.COMPONENTS) == len({(o.node, o.component) for o in recent})
    assert count(Scope.JOB, Distinct.NODES) == max(len({o.node for o in recent if job in o.jobs}) for job in "ab")
    assert count(Scope.NODE, Distinct.INCIDENTS) == len({o.incident for o in here})
    assert count(Scope.NODE, Distinct.ALL_JOBS) == len({j for o in here for j in o.jobs})
    wide = {j for o in here if o.job_nodes > 1 for j in o.jobs}
    only_here = wide - {j for o in recent if o.node != "n1" for j in o.jobs}
    assert count(Scope.NODE, Distinct.JOBS) == len(only_here)


def test_what_no_window_reaches_is_forgotten_and_nothing_else() -> None:
    made = history([Occurrence(0.0, "xid/13", "n1"), Occurrence(WINDOW_MAX_S, "xid/13", "n1")])
    made.forget(WINDOW_MAX_S + 1)
    assert made.count(Clause(within_s=WINDOW_MAX_S * 2, at_least=1), SUBJECT, WINDOW_MAX_S + 1) == 1


def test_of_names_other_kinds_by_pattern() -> None:
    made = history([Occurrence(1.0, "action/reset_gpu", "n1"), Occurrence(2.0, "action/reboot", "n1")])
    assert made.count(Clause(within_s=10, at_least=1, of=("action/*",)), SUBJECT, 3.0) == 2
    assert made.count(Clause(within_s=10, at_least=1, of=("action/reboot",)), SUBJECT, 3.0) == 1
