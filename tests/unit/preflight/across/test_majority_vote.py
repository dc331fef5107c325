from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from preflight.device_comparison.device_digests import ComputedDigests, parse_computed_digests
from preflight.device_comparison.majority_vote import VOTERS_MIN, VoteResult, judge_by_majority, vote_on_digests
from preflight.results import Outcome, Result

WORKS = tuple(f"{kind} 8192 seed {seed}" for kind in ("bf16", "fp8") for seed in (1, 2))
H100 = "NVIDIA H100, sm_90, 132 SMs, torch 2.11"
NAMED = {VoteResult.WRONG_BY_GOLDEN, VoteResult.WRONG_BY_MAJORITY}
digests = st.sampled_from(["aaaa", "bbbb", "cccc", "dddd"])
votes = st.dictionaries(st.sampled_from([f"cuda:{i}" for i in range(8)]), digests, min_size=1)
goldens = st.sampled_from(["", "aaaa", "bbbb"])


def result(
    device: str, bits: dict[str, str], golden: dict[str, str] | None = None, platform: str = H100, **changes: object
) -> Result:
    told = ComputedDigests(platform=platform, votes=True, digests=bits, goldens=golden or {})
    made = Result(test="matmul_repeat", outcome=Outcome.PASS, device=device, evidence=told.evidence())
    return msgspec.structs.replace(made, **changes)


def same(bits: str = "aaaa") -> dict[str, str]:
    return dict.fromkeys(WORKS, bits)


def outcomes(results: tuple[Result, ...]) -> list[str]:
    return [each.outcome.value for each in results]


@given(st.integers(VOTERS_MIN, 8), st.data())
def test_one_culprit_among_three_or_more_is_named_and_no_innocent_ever(many: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, many - 1))
    wrong = {work: data.draw(digests) for work in WORKS}
    golden = {work: data.draw(goldens) for work in WORKS}
    known = {work: digest for work, digest in golden.items() if digest}
    results = [result(f"cuda:{i}", wrong if i == culprit else same(), known) for i in range(many)]
    judged = judge_by_majority(results)
    accused = [i for i, each in enumerate(judged) if each.outcome is Outcome.FAIL]
    assert set(accused) <= {culprit}
    if any(wrong[work] != "aaaa" and golden[work] in {"", "aaaa"} for work in WORKS):
        assert accused == [culprit]
    if wrong == same():
        assert accused == []
        assert Outcome.ERROR not in {each.outcome for each in judged}


@given(votes, goldens, st.randoms(use_true_random=False))
def test_the_order_of_devices_does_not_matter(cast: dict[str, str], golden: str, shuffled: st.randoms) -> None:
    order = list(cast.items())
    shuffled.shuffle(order)
    assert vote_on_digests(dict(order), golden) == vote_on_digests(cast, golden)


@given(votes, goldens)
def test_who_agrees_is_told_the_same_and_nobody_is_named_without_somebody_who_is_right(
    cast: dict[str, str], golden: str
) -> None:
    said = vote_on_digests(cast, golden)
    assert set(said) == set(cast)
    for digest in set(cast.values()):
        assert len({said[who] for who in cast if cast[who] == digest}) == 1
    named = [who for who in cast if said[who] in NAMED]
    right = [who for who in cast if said[who] in {VoteResult.RIGHT, VoteResult.STALE}]
    assert not named or right or len(cast) == 1
    if not golden:
        assert not named or (len(cast) >= VOTERS_MIN and len(right) > len(cast) / 2)
        assert len(set(cast.values())) == 1 or named or set(said.values()) == {VoteResult.OPEN}


def test_two_that_differ_accuse_nobody_and_neither_passes() -> None:
    judged = judge_by_majority([result("cpu:0", same()), result("cpu:1", same() | {WORKS[2]: "bbbb"})])
    assert outcomes(judged) == ["error", "error"]
    for each in judged:
        assert "cpu:0 against cpu:1" in each.reason
        assert WORKS[2] in each.reason
        assert WORKS[1] not in each.reason


def test_a_golden_tells_which_of_two_is_wrong_and_convicts_one_alone() -> None:
    judged = judge_by_majority([result("cuda:0", same(), same()), result("cuda:1", same("bbbb"), same())])
    assert outcomes(judged) == ["pass", "fail"]
    assert "golden" in judged[1].reason
    assert outcomes(judge_by_majority([result("cuda:0", same("bbbb"), same())])) == ["fail"]


def test_a_golden_that_a_majority_contradicts_decides_nothing() -> None:
    many = [result(f"cuda:{i}", same(), same("bbbb")) for i in range(3)]
    stale = judge_by_majority(many)
    assert outcomes(stale) == ["pass"] * 3
    assert "record the goldens again" in stale[0].remarks[0]
    against = judge_by_majority([*many, result("cuda:3", same("bbbb"), same("bbbb"))])
    assert outcomes(against) == ["error"] * 4


def test_two_against_two_is_no_majority() -> None:
    results = [result(f"cuda:{i}", same("aaaa" if i < 2 else "bbbb")) for i in range(4)]
    assert outcomes(judge_by_majority(results)) == ["error"] * 4


def test_who_failed_by_itself_does_not_vote() -> None:
    failed = result("cuda:0", same("bbbb"), outcome=Outcome.FAIL, reason="NaN")
    judged = judge_by_majority([failed, result("cuda:1", same())])
    assert judged[0] == failed
    assert judged[1].outcome is Outcome.PASS
    assert "verified only by repeats" in judged[1].remarks[0]


def test_another_platform_or_a_part_of_a_card_is_not_compared() -> None:
    other = result("cuda:1", same("bbbb"), platform="NVIDIA H100, sm_90, 16 SMs, torch 2.11")
    slices = [
        Result(
            test="matmul_repeat",
            outcome=Outcome.PASS,
            device=f"cuda:0/mig{i}",
            evidence=ComputedDigests(platform=H100, votes=False, digests=same(bits)).evidence(),
        )
        for i, bits in enumerate(("cccc", "dddd"))
    ]
    judged = judge_by_majority([result("cuda:0", same()), other, *slices])
    assert outcomes(judged) == ["pass"] * 4
    assert "does not vote" in judged[2].remarks[0]


def test_devices_are_compared_in_the_works_that_both_have_done() -> None:
    slow = result("cuda:2", {WORKS[0]: "aaaa"})
    judged = judge_by_majority([result("cuda:0", same()), result("cuda:1", same()), slow])
    assert outcomes(judged) == ["pass"] * 3
    assert judged[0].evidence["compared_with"] == "cuda:1, cuda:2"
    odd = msgspec.structs.replace(slow, evidence=result("", {WORKS[0]: "bbbb"}).evidence)
    assert outcomes(judge_by_majority([*judged[:2], odd])) == ["pass", "pass", "fail"]


def test_results_without_digests_stay_as_they_are() -> None:
    hung = Result(test="matmul_repeat", outcome=Outcome.HANG, device="cuda:1", reason="no end")
    bare = Result(test="matmul_repeat", outcome=Outcome.PASS, device="cuda:0")
    assert judge_by_majority([hung, bare]) == (hung, bare)


def refused(
    device: str,
    bits: dict[str, str],
    works: tuple[str, ...],
    platform: str = H100,
    golden: dict[str, str] | None = None,
) -> Result:
    told = ComputedDigests(platform=platform, votes=True, digests=bits, goldens=golden or {}, objected=works)
    return Result(
        test="matmul_repeat",
        outcome=Outcome.FAIL,
        device=device,
        reason="wrong in every repeat",
        evidence=told.evidence(),
        by_limit=True,
    )


def test_bits_that_all_share_and_all_refuse_are_no_devices_fault() -> None:
    shared = judge_by_majority([refused(f"cuda:{i}", same(), WORKS[:1]) for i in range(2)])
    assert outcomes(shared) == ["error", "error"]
    assert "cuda:0, cuda:1 compute the same bits" in shared[0].reason


def test_verification_alone_fails_nothing() -> None:
    alone = judge_by_majority([refused("cuda:0", same(), WORKS[:1])])
    assert "wrong in every repeat. No other device and no golden digest confirms this" in alone[0].reason
    other_bits = judge_by_majority([refused("cuda:0", same(), WORKS[:1]), refused("cuda:1", same("bbbb"), WORKS[:1])])
    other_chip = judge_by_majority([refused("cuda:0", same(), WORKS[:1]), refused("cuda:1", same(), WORKS[:1], "H200")])
    assert outcomes(alone + other_bits + other_chip) == ["error"] * 5
    known = judge_by_majority([refused("cuda:0", same(), WORKS[:1], golden={WORKS[0]: "bbbb"})])
    assert outcomes(known) == ["fail"]
    right = judge_by_majority([refused("cuda:0", same(), WORKS[:1], golden={WORKS[0]: "aaaa"})])
    assert outcomes(right) == ["error"], "the golden digest says that the verification is wrong"
    by_repeats = msgspec.structs.replace(refused("cuda:0", same(), WORKS[:1]), by_limit=False)
    assert outcomes(judge_by_majority([by_repeats])) == ["fail"]


def test_who_refuses_what_another_took_is_itself_wrong() -> None:
    judged = judge_by_majority(
        [refused("cuda:0", same(), WORKS[:1]), result("cuda:1", same()), result("cuda:2", same())]
    )
    assert outcomes(judged) == ["fail", "pass", "pass"]
    more = judge_by_majority([refused("cuda:0", same(), WORKS[:2]), refused("cuda:1", same(), WORKS[:1])])
    assert outcomes(more) == ["error", "error"]


def test_two_alike_are_not_excused_against_another_that_computes_otherwise() -> None:
    two = [refused(f"cuda:{i}", same("bbbb"), WORKS[:1]) for i in range(2)]
    assert outcomes(judge_by_majority([*two, result("cuda:2", same())])) == ["fail", "fail", "pass"]
    assert outcomes(judge_by_majority([*two, result("cuda:2", same(), platform="H200")])) == ["error", "error", "pass"]
    assert outcomes(judge_by_majority([*two, result("cuda:2", {WORKS[1]: "aaaa"})])) == ["error", "error", "pass"]
    golden = [refused(f"cuda:{i}", same("bbbb"), WORKS[:1], golden={WORKS[0]: "aaaa"}) for i in range(2)]
    assert outcomes(judge_by_majority(golden)) == ["fail", "fail"]
    agreed = [refused(f"cuda:{i}", same("bbbb"), WORKS[:1], golden={WORKS[0]: "bbbb"}) for i in range(2)]
    assert outcomes(judge_by_majority(agreed)) == ["error", "error"]


def without(device: str, *types: str, **changes: object) -> Result:
    """A device whose library refuses these types."""
    bits = {work: "aaaa" for work in WORKS if work.split()[0] not in types}
    told = ComputedDigests(platform=H100, votes=True, digests=bits, refused=types)
    made = Result(test="matmul_repeat", outcome=Outcome.PASS, device=device, evidence=told.evidence())
    return msgspec.structs.replace(made, **changes)


def test_a_type_that_a_sibling_has_may_not_be_refused() -> None:
    judged = judge_by_majority([result("cuda:0", same()), without("cuda:1", "fp8")])
    assert outcomes(judged) == ["pass", "fail"]
    assert judged[1].reason == "its library refuses fp8, which cuda:0 of the same platform computed"
    assert judged[1].locations[0].gpu == "cuda:1"
    both = judge_by_majority([result("cuda:0", same() | {"int8 256 seed 1": "aaaa"}), without("cuda:1", "fp8", "int8")])
    assert both[1].reason == "its library refuses fp8, int8, which cuda:0 of the same platform computed"
    assert outcomes(judge_by_majority([without("cuda:0", "fp8"), without("cuda:1", "fp8")])) == ["pass", "pass"]
    assert outcomes(judge_by_majority([result("cuda:0", same(), platform="H200"), without("cuda:1", "fp8")])) == [
        "pass",
        "pass",
    ]
    failed = result("cuda:0", same(), outcome=Outcome.FAIL)
    assert outcomes(judge_by_majority([failed, without("cuda:1", "fp8")])) == ["fail", "pass"], (
        "who failed proves nothing"
    )


names = st.from_regex(r"[a-z0-9]{2,5} [0-9]{2,5} seed [0-9]{1,6}", fullmatch=True)
hexadecimal = st.from_regex(r"[0-9a-f]{16}", fullmatch=True)


@given(
    bits=st.dictionaries(names, hexadecimal, min_size=1),
    golden=st.dictionaries(names, hexadecimal),
    voting=st.booleans(),
    platform=st.text(min_size=1),
)
def test_evidence_can_be_read_again(
    *, bits: dict[str, str], golden: dict[str, str], voting: bool, platform: str
) -> None:
    told = ComputedDigests(
        platform=platform, votes=voting, digests=bits, goldens=golden, objected=tuple(bits)[:2], refused=("fp8",)
    )
    assert parse_computed_digests(Result(test="t", outcome=Outcome.PASS, evidence=told.evidence())) == told
