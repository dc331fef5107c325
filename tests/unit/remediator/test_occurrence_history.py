from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from remediator.model.occurrence import Occurrence
from remediator.model.rule_conditions import WINDOW_MAX_S, CountCondition, Distinct, Scope
from remediator.state.occurrence_history import CountSubject, OccurrenceHistory

NODES, JOBS, KINDS = (
    st.sampled_from(["n1", "n2"]),
    st.sampled_from(["a", "b", "c"]),
    st.sampled_from(["xid/13", "xid/31"]),
)


def occurrences(kinds: st.SearchStrategy[str], incidents: st.SearchStrategy[str]) -> st.SearchStrategy[Occurrence]:
    return st.builds(
        Occurrence,
        at=st.floats(0, 1000),
        kind=kinds,
        node=NODES,
        component=st.sampled_from(["gpu:0", "gpu:1"]),
        jobs=st.lists(JOBS, max_size=2, unique=True).map(tuple),
        job_nodes=st.integers(0, 3),
        count=st.integers(1, 3),
        incident=incidents,
        injected=st.booleans(),
    )


FINDINGS = st.lists(occurrences(KINDS, st.just("")), max_size=30)
DEEDS = st.lists(occurrences(st.sampled_from(["rule/a", "rule/b"]), st.sampled_from(["i1", "i2", "i3"])), max_size=30)
SUBJECT = CountSubject("xid/13", "n1", "gpu:0", ("a", "b"), incident="i1")


def history(occurrences: list[Occurrence]) -> OccurrenceHistory:
    made = OccurrenceHistory()
    for occurrence in occurrences:
        made.add(occurrence)
    return made


@given(FINDINGS, st.floats(1, 1000))
def test_counts_are_what_a_plain_look_at_everything_says(found: list[Occurrence], within: float) -> None:
    now = 1000.0
    made = history(found)
    recent = [o for o in found if o.at > now - within and o.kind == "xid/13" and not o.injected]

    def count(scope: Scope, distinct: Distinct) -> int:
        return made.count(CountCondition(within_s=within, at_least=1, scope=scope, distinct=distinct), SUBJECT, now)

    here = [o for o in recent if o.node == "n1"]
    assert count(Scope.NODE, Distinct.EVENTS) == sum(o.count for o in here)
    assert count(Scope.COMPONENT, Distinct.EVENTS) == sum(o.count for o in here if o.component == "gpu:0")
    assert count(Scope.CLUSTER, Distinct.NODES) == len({o.node for o in recent})
    assert count(Scope.CLUSTER, Distinct.COMPONENTS) == len({(o.node, o.component) for o in recent})
    assert count(Scope.JOB, Distinct.NODES) == max(len({o.node for o in recent if job in o.jobs}) for job in "ab")
    assert count(Scope.NODE, Distinct.ALL_JOBS) == len({j for o in here for j in o.jobs})
    wide = {j for o in here if o.job_nodes > 1 for j in o.jobs}
    only_here = wide - {j for o in recent if o.node != "n1" for j in o.jobs}
    assert count(Scope.NODE, Distinct.JOBS) == len(only_here)


@given(DEEDS, st.floats(1, 1000), st.booleans())
def test_deeds_of_the_incident_itself_do_not_count_and_drills_only_among_drills(
    found: list[Occurrence],
    within: float,
    drill: bool,  # noqa: FBT001 - drawn
) -> None:
    clause = CountCondition(within_s=within, at_least=1, of=("rule/*",), distinct=Distinct.INCIDENTS)
    subject = CountSubject("xid/13", "n1", "gpu:0", ("a",), incident="i1", injected=drill)
    others = [o for o in found if o.at > 1000.0 - within and o.node == "n1" and o.incident != "i1"]
    counted = {o.incident for o in others if drill or not o.injected}
    assert history(found).count(clause, subject, 1000.0) == len(counted)


def test_what_no_window_reaches_is_forgotten_and_nothing_else() -> None:
    made = history([Occurrence(0.0, "xid/13", "n1"), Occurrence(WINDOW_MAX_S, "xid/13", "n1")])
    made.forget(WINDOW_MAX_S + 1)
    assert made.count(CountCondition(within_s=WINDOW_MAX_S * 2, at_least=1), SUBJECT, WINDOW_MAX_S + 1) == 1


def test_of_names_other_kinds_by_pattern() -> None:
    made = history([Occurrence(1.0, "action/reset_gpu", "n1"), Occurrence(2.0, "action/reboot", "n1")])
    assert made.count(CountCondition(within_s=10, at_least=1, of=("action/*",)), SUBJECT, 3.0) == 2
    assert made.count(CountCondition(within_s=10, at_least=1, of=("action/reboot",)), SUBJECT, 3.0) == 1


def test_a_pattern_that_was_asked_for_names_kinds_that_come_and_go_later() -> None:
    clause = CountCondition(within_s=2 * WINDOW_MAX_S, at_least=1, of=("rule/*",))
    made = history([Occurrence(0.0, "rule/a", "n1")])
    assert made.count(clause, SUBJECT, 1.0) == 1
    made.add(Occurrence(WINDOW_MAX_S, "rule/b", "n1"))
    assert made.count(clause, SUBJECT, 1.0) == 2
    made.forget(WINDOW_MAX_S + 1)
    assert made.count(clause, SUBJECT, 1.0) == 1
