"""From what nodes and pairs said to the verdict of a group, in groups that are imagined."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from preflight.fault_localisation.localisation_records import Kind, Why
from preflight.fault_localisation.pair_rounds import plan_pair_rounds
from preflight.group.group_records import NodeReport, PairRecord, RailMeasurement, SelfTestResult, Standing, StepAnswer
from preflight.group.group_verdict import (
    GroupEvidence,
    GroupJudgement,
    judge_group,
    plan_next_round,
    select_excluded_nodes,
)
from preflight.group.injected_faults import FaultError, compute_rate_share, find_unknown_nodes, parse_injected_faults
from preflight.group.pair_records import build_pair_results, combine_pair_answers
from preflight.group.participation import decide_participation, find_duplicate_names, share_one_machine
from preflight.results import Evidence, Verdict

NODES = tuple(f"n{number}" for number in range(8))


def word(
    node: str, own: SelfTestResult | None = None, facts: Evidence | None = None, rails: tuple[str, ...] = ()
) -> NodeReport:
    return NodeReport(rank=0, node=node, machine=node, own=own, facts=facts or {}, rails=rails)


def scene(words: Sequence[NodeReport], **known: object) -> GroupEvidence:
    standing = {word.node: decide_participation(word) for word in words}
    return GroupEvidence(standing, {word.node: word for word in words}, (), compared=True, **known)  # type: ignore[arg-type]  # of a test


def played(start: GroupEvidence, injected: Sequence[str]) -> tuple[GroupJudgement, int]:
    """Run the rounds and confirmations of a group whose pairs measure 40 GB/s but for the faults; the verdict and how many rounds it took."""
    faults, now = parse_injected_faults(injected), start
    tested = [node for node, standing in start.standing.items() if standing is Standing.TESTED]
    planned = [*plan_pair_rounds(tested, {}, 4, seed=1)]
    number = 0
    for _ in range(10):
        pairs = planned.pop(0) if planned else plan_next_round(now)
        if not pairs:
            break
        number += 1
        answers = {}
        for pair in pairs:
            for node, peer in (pair, pair[::-1]):
                share = compute_rate_share(faults, node, peer)
                answers[node] = StepAnswer(measured=(RailMeasurement(rate=40 * share, factor=share),))
        now = replace(now, records=(*now.records, *combine_pair_answers(number, pairs, answers, compared=now.compared)))
    return judge_group(now), number


def test_a_healthy_group_passes_without_a_confirmation() -> None:
    judged, took = played(scene([word(node) for node in NODES]), [])
    assert (judged.verdict, judged.reasons, took) == (Verdict.PASS, (), 4)
    assert set(judged.cleared) == set(NODES)


@pytest.mark.parametrize("compared", [True, False])
@given(size=st.integers(4, 16), bad=st.integers(0, 15), share=st.floats(0.3, 0.85))
@settings(max_examples=25, deadline=None)
def test_a_slow_node_is_named_and_nobody_else(compared: bool, size: int, bad: int, share: float) -> None:  # noqa: FBT001 - a case
    nodes = [f"n{number}" for number in range(size)]
    culprit = nodes[bad % size]
    judged, _ = played(replace(scene([word(node) for node in nodes]), compared=compared), [f"slow:{culprit}={share}"])
    assert judged.verdict is Verdict.FAIL
    assert [(one.kind, one.where) for one in judged.culprits] == [(Kind.NODE, (culprit,))]
    assert judged.exclude == (culprit,)


@given(size=st.integers(4, 12), ends=st.sets(st.integers(0, 3), min_size=2, max_size=2))
@settings(max_examples=25, deadline=None)
def test_a_slow_link_is_named_and_its_nodes_are_not(size: int, ends: set[int]) -> None:
    nodes = [f"n{number}" for number in range(size)]
    a, b = sorted(nodes[end] for end in ends)
    judged, _ = played(scene([word(node) for node in nodes]), [f"link:{a},{b}=0.5"])
    if judged.verdict is Verdict.PASS:  # in a large group not every pair meets
        assert size > 4
        return
    assert [(one.kind, one.where) for one in judged.culprits] == [(Kind.LINK, (a, b))]
    assert len(judged.exclude) == 1


def test_a_node_that_failed_alone_is_a_culprit_and_meets_nobody() -> None:
    words = [word(node) for node in NODES[1:]] + [
        word("n0", SelfTestResult(verdict=Verdict.FAIL, reason="matmul on cuda:3: wrong"))
    ]
    judged, _ = played(scene(words), [])
    assert judged.verdict is Verdict.FAIL
    assert judged.reasons == ("node n0: failed its own test: matmul on cuda:3: wrong",)
    assert judged.exclude == ("n0",)
    assert set(judged.cleared) == set(NODES[1:])


@pytest.mark.parametrize(
    ("own", "verdict", "words"),
    [
        (SelfTestResult(verdict=Verdict.MISCONFIGURED, reason="cuda:0 is busy: pid 7"), Verdict.MISCONFIGURED, "node n0: cuda:0 is busy: pid 7"),
        (SelfTestResult(verdict=Verdict.INCONCLUSIVE, reason="out of memory"), Verdict.INCONCLUSIVE, "node n0: out of memory"),
    ],
)  # fmt: skip
def test_what_one_node_cannot_say_is_no_pass_and_no_accusation(
    own: SelfTestResult, verdict: Verdict, words: str
) -> None:
    judged, _ = played(scene([word("n0", own), *(word(node) for node in NODES[1:])]), [])
    assert (judged.verdict, judged.reasons, judged.culprits, judged.exclude) == (verdict, (words,), (), ())


def test_who_runs_other_software_is_named() -> None:
    words = [word(node, facts={"driver": "580.1" if node != "n3" else "570.9"}) for node in NODES]
    judged, _ = played(scene(words), [])
    assert judged.verdict is Verdict.MISCONFIGURED
    assert judged.culprits == ()
    assert "n3" in judged.reasons[0]
    assert "570.9" in judged.reasons[0]


def test_a_fault_of_a_stranger_is_misconfigured() -> None:
    judged = judge_group(replace(scene([word(node) for node in NODES]), strangers=("x",)))
    assert judged.verdict is Verdict.MISCONFIGURED
    assert len(judged.reasons) == 1


def test_who_never_came_is_unknown_and_who_fell_silent_is_a_culprit() -> None:
    start = scene([word(node) for node in NODES])
    absent = replace(start, standing={**start.standing, "n1": Standing.ABSENT})
    judged, _ = played(absent, [])
    assert (judged.verdict, judged.unknown, judged.culprits) == (Verdict.INCONCLUSIVE, ("n1",), ())
    silent = replace(start, standing={**start.standing, "n1": Standing.SILENT}, silent_since={"n1": "no answer"})
    judged, _ = played(silent, [])
    assert (judged.verdict, judged.exclude) == (Verdict.FAIL, ("n1",))


def test_where_most_fall_silent_nobody_is_named() -> None:
    start = scene([word(node) for node in NODES])
    standing = {**start.standing, **dict.fromkeys(NODES[:5], Standing.SILENT)}
    judged, _ = played(replace(start, standing=standing), [])
    assert (judged.verdict, judged.culprits) == (Verdict.INCONCLUSIVE, ())
    assert "the network of rank 0" in judged.reasons[0]


def test_wrong_data_once_is_never_a_pass() -> None:
    start = scene([word(node) for node in NODES])
    wrong = PairRecord(round=1, a="n0", b="n1", why=Why.ERROR, words="n1: 3 words came wrong", wrong_words=3)
    judged, _ = played(replace(start, records=(wrong,)), [])
    assert judged.verdict is not Verdict.PASS
    assert any("wrong data between n0 and n1" in reason or "wrong data in" in reason for reason in judged.reasons)


def test_the_slow_rail_of_a_node_is_its_adapter() -> None:
    rails = ("mlx5_0", "mlx5_1", "mlx5_2")
    start = scene([word(node, rails=rails) for node in NODES])
    records = []
    for number, pairs in enumerate(plan_pair_rounds(NODES, {}, 4, seed=3), 1):
        answers = {
            node: StepAnswer(
                measured=tuple(
                    RailMeasurement(rail=rail, rate=20.0 if node == "n5" and rail == 1 else 40.0) for rail in range(3)
                )
            )
            for node in NODES
        }
        records += combine_pair_answers(number, pairs, answers, compared=True)
    judged = judge_group(replace(start, records=records))
    assert [(one.kind, one.where, one.nic) for one in judged.culprits] == [(Kind.NIC, ("n5",), "mlx5_1")]
    assert judged.exclude == ("n5",)


def test_a_group_of_one_without_a_test_proves_nothing() -> None:
    assert judge_group(scene([word("n0")])).verdict is Verdict.INCONCLUSIVE
    assert judge_group(scene([word("n0", SelfTestResult(verdict=Verdict.PASS))])).verdict is Verdict.PASS


def test_of_bad_links_as_few_nodes_as_needed_are_left_out() -> None:
    judged, _ = played(scene([word(node) for node in NODES[:4]]), ["link:n0,n1=0.5"])
    link = judged.culprits[0]
    fan = [msgspec.structs.replace(link, where=("hub", other)) for other in ("a", "b", "c")]
    assert select_excluded_nodes(fan) == ("hub",)


def test_both_ends_are_heard_and_the_worse_counts() -> None:
    fine, slow = StepAnswer(measured=(RailMeasurement(rate=4.0),)), StepAnswer(measured=(RailMeasurement(rate=3.0),))
    wrong = StepAnswer(measured=(RailMeasurement(why=Why.ERROR, wrong_words=2, words="2 words"),))
    cut = StepAnswer(measured=(RailMeasurement(why=Why.ERROR, words="closed"),))
    (record,) = combine_pair_answers(1, [("a", "b")], {"a": fine, "b": slow}, compared=True)
    assert record.rate == 3.0
    (record,) = combine_pair_answers(1, [("a", "b")], {"a": fine}, compared=True)
    assert (record.why, record.words) == (Why.HANG, "b: no answer")
    (record,) = combine_pair_answers(1, [("a", "b")], {"a": wrong, "b": cut}, compared=True)
    assert (record.why, record.wrong_words, record.words) == (Why.ERROR, 2, "a: 2 words")
    assert build_pair_results([record], compared=True)[0].value is None


def test_one_name_for_two_processes_and_one_machine_for_two_nodes_are_seen() -> None:
    assert find_duplicate_names(["a", "b", "a"]) == ["a"]
    assert not share_one_machine({"a": word("a"), "b": word("b")})
    assert share_one_machine({"a": word("a"), "b": msgspec.structs.replace(word("b"), machine="a")})


@pytest.mark.parametrize(
    "text", ["", "slow:n1", "slow:n1=1", "slow:n1=0", "slow:n1=x", "link:n1=0.5", "link:n1,n1=0.5", "hang:n1=0.5", "hang:", "melt:n1"]
)  # fmt: skip
def test_what_is_no_fault_is_refused(text: str) -> None:
    with pytest.raises(FaultError, match="use one of slow:NODE=SHARE"):
        parse_injected_faults([text])


def test_faults_know_strangers() -> None:
    assert find_unknown_nodes(parse_injected_faults(["link:n1,x=0.5", "die:y"]), ["n1"]) == ["x", "y"]


def test_what_is_not_known_of_software_is_no_pass() -> None:
    words = [word(node) for node in NODES]
    words[3] = msgspec.structs.replace(words[3], facts=None)
    judged, _ = played(scene(words), [])
    assert judged.verdict is Verdict.INCONCLUSIVE
    assert "the software versions of n3 could not be read" in judged.reasons[0]


def test_who_speaks_another_version_is_named_and_the_rest_is_tested() -> None:
    start = scene([word(node) for node in NODES])
    start = replace(start, standing={**start.standing, "n9": Standing.WAITS}, odd={"n9": "speaks another version"})
    judged, _ = played(start, [])
    assert (judged.verdict, judged.reasons) == (Verdict.MISCONFIGURED, ("node n9 speaks another version",))
    assert set(judged.cleared) == set(NODES)


def test_a_made_up_name_is_for_nobody_to_leave_out() -> None:
    failed = SelfTestResult(verdict=Verdict.FAIL, reason="wrong")
    start = scene([word("dup#1", failed), word("dup#2"), *(word(node) for node in NODES)])
    judged, _ = played(replace(start, doubles={"dup": (1, 2)}), [])
    assert (judged.verdict, judged.exclude) == (Verdict.FAIL, ())
    assert any("two processes have the name dup (ranks 1, 2)" in reason for reason in judged.reasons)
