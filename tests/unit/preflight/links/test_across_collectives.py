from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from preflight.check_context import Device
from preflight.device_comparison.collective_results import (
    PROOFS_MIN,
    UNOWNED,
    find_wrong_part_owners,
    judge_collectives,
)
from preflight.results import Figure, Location, Outcome, Result

NAMES = [f"cuda:{n}" for n in range(8)]
DEVICES = tuple(Device(name=name, torch_name=name, index=n, label="GPU") for n, name in enumerate(NAMES))
ALL = {(a, b) for a in NAMES for b in NAMES}


def ranks(wrong: set[tuple[str, str]] | None = None, arrived: dict[str, float] | None = None) -> list[Result]:
    """`wrong` holds (whose part, on which device)."""
    results = []
    for name in NAMES:
        peers = sorted(sender for sender, receiver in wrong or () if receiver == name)
        results.append(
            Result(
                test="collectives",
                outcome=Outcome.FAIL if peers else Outcome.PASS,
                device=name,
                reason="all_reduce: 1 wrong words" if peers else "",
                figures=(Figure(name="bus_rate", value=470.0, unit="GB/s", setting="all_reduce, 8 ranks, nccl"),),
                locations=tuple(Location(gpu=name, peer=peer) for peer in peers),
                evidence={"arrived_s": (arrived or {}).get(name, 0.01)},
            )
        )
    return results


def failed(results: list[Result]) -> dict[str, str]:
    return {r.device: r.reason for r in judge_collectives(results, DEVICES) if r.outcome is Outcome.FAIL}


def test_right_and_in_time_accuses_nobody() -> None:
    assert not failed(ranks())


def test_a_part_that_is_wrong_everywhere_is_its_owners() -> None:
    everywhere = {("cuda:5", name) for name in NAMES}
    assert failed(ranks(everywhere)) == {
        "cuda:5": "its contribution was wrong on 8 of 8 devices; all_reduce: 1 wrong words"
    }
    judged = {r.device: r for r in judge_collectives(ranks(everywhere), DEVICES)}
    assert "not at fault here" in judged["cuda:0"].remarks[0]
    assert not judged["cuda:0"].locations


def test_who_receives_wrong_from_many_is_named() -> None:
    assert set(failed(ranks({(name, "cuda:2") for name in NAMES if name != "cuda:2"}))) == {"cuda:2"}


def test_one_wrong_way_is_between_its_ends() -> None:
    found = failed(ranks({("cuda:1", "cuda:6")}))
    assert set(found) == {"cuda:1", "cuda:6"}
    assert "wrong data between cuda:1 and cuda:6; this test cannot tell the ends from the link" in found["cuda:1"]


def test_parts_of_many_that_are_wrong_everywhere_name_nobody_but_fail() -> None:
    found = failed(ranks(ALL))
    assert set(found) == set(NAMES)
    assert "the contributions of many devices are wrong" in found["cuda:3"]


def test_wrong_sums_that_are_nobodys_are_an_error() -> None:
    wrong = {"outcome": Outcome.FAIL, "reason": "all_reduce: 1 wrong words"}
    results = [
        msgspec.structs.replace(r, **wrong, evidence=r.evidence | {UNOWNED: True}) if r.device != "cuda:7" else r
        for r in ranks()
    ]
    judged = judge_collectives(results, DEVICES)
    assert [r.outcome for r in judged] == [Outcome.ERROR] * 7 + [Outcome.PASS]
    assert "all_reduce: 1 wrong words; the wrong bits follow no device's contribution" in judged[0].reason
    with_culprit = ranks({("cuda:7", "cuda:7"), ("cuda:7", "cuda:0")})
    assert set(failed([*results[:7], with_culprit[7]])) == {"cuda:7"}


@given(st.integers(2, 16), st.data())
def test_a_part_that_is_wrong_wherever_it_lies_is_its_owners_and_a_bit_that_stays_is_nobodys(
    count: int, data: st.DataObject
) -> None:
    turns = [number % count for number in range(PROOFS_MIN)]
    culprit = data.draw(st.integers(0, count - 1))
    beside = [data.draw(st.sets(st.integers(0, count - 1), max_size=1)) for _ in turns]
    assert culprit in find_wrong_part_owners(
        [(turn, {culprit} | more) for turn, more in zip(turns, beside, strict=True)]
    )
    assert find_wrong_part_owners([(turn, {(culprit - turn) % count}) for turn in turns]) == ()
    assert find_wrong_part_owners([(turn, ()) for turn in turns]) == (), "bits that are in nobody's part"


def test_few_wrong_sums_or_only_one_place_prove_nothing() -> None:
    assert find_wrong_part_owners([(0, {1}), (1, {1}), (0, {1})]) == ()
    assert find_wrong_part_owners([(0, {1})] * 9) == ()
    assert find_wrong_part_owners([(0, {1}), (1, {1})] * 2) == (1,)
    assert find_wrong_part_owners([]) == ()


def test_floats_that_are_wrong_fail_though_they_do_not_say_who() -> None:
    results = ranks()
    wrong = msgspec.structs.replace(results[4], outcome=Outcome.FAIL, reason="all_reduce of bf16: 3 wrong sums")
    assert set(failed([*results[:4], wrong, *results[5:]])) == {"cuda:4"}


def test_late_is_who_takes_several_times_as_long_and_long_enough() -> None:
    assert set(failed(ranks(arrived={"cuda:7": 0.05}))) == {"cuda:7"}
    assert not failed(ranks(arrived={"cuda:7": 0.025})), "three times as long, or next to nothing"
    assert not failed(ranks(arrived=dict.fromkeys(NAMES, 0.1) | {"cuda:7": 0.2})), "twice as long is load, not late"
    assert not failed(ranks(arrived=dict.fromkeys(NAMES, 5.0))), "all alike"


def test_who_broke_off_leaves_the_others_unjudged_by_time() -> None:
    hung = Result(test="collectives", outcome=Outcome.HANG, device="cuda:7", reason="did not arrive")
    judged = judge_collectives([*ranks(arrived={"cuda:0": 9.0})[:7], hung], DEVICES)
    assert [r.outcome for r in judged] == [Outcome.PASS] * 7 + [Outcome.HANG]
