"""NCCL's RAS status, in the forms of its versions, and anything else that may come from a port any user can listen at."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.nccl.hang_suspects import count_launches, find_suspects, is_progress
from healthd.nccl.ras_answer import RANKS_MAX, RasAnswerError, RasProcess, parse_ras_answer
from tests.nodes.nccl_ras.documents import Gone, answer, communicator, write_answer

COUNTS = {0: (1, 0, 7, 0, 9), 1: (1, 0, 7, 0, 8), 9: Gone(), 10: Gone(unresponsive=False)}
DOCUMENT = answer([communicator("0xab", COUNTS), communicator("0xcd", {1: (0, 0, 0, 0, 2), 0: (0, 0, 0, 0, 2)})])


def test_the_ranks_the_missing_and_their_counts_are_read() -> None:
    read = parse_ras_answer(write_answer(DOCUMENT))
    one, other = read.communicators
    assert (read.version, one.name, one.size) == ("2.29.2", "0xab:0x1:0x2", 4)
    assert one.ranks[1].process == RasProcess("10.0.0.1", 4001, 1)
    assert sorted(one.ranks[1].counts) == [0, 0, 1, 7, 8]
    assert [(rank.rank, rank.process.host, rank.silent) for rank in one.missing] == [
        (2, "10.0.0.2", True),
        (3, "10.0.0.2", False),
    ]
    assert [rank.process.pid for rank in other.ranks] == [4001, 4000]


def test_the_comma_that_2_28_9_leaves_out_is_put_in() -> None:
    old = write_answer(DOCUMENT, without_comma=True)
    with pytest.raises(json.JSONDecodeError):
        json.loads(old)
    assert parse_ras_answer(old) == parse_ras_answer(write_answer(DOCUMENT))


@pytest.mark.parametrize(
    "status", [{"finalize_called": True}, {"destroy_flag": True}, {"abort_flag": True}, {"init_state": 7}]
)
def test_a_rank_that_starts_or_ends_does_not_run(status: dict[str, Any]) -> None:
    document = answer([communicator("0xab", {0: (0,) * 5, 1: (0,) * 5}, {1: status})])
    assert [rank.running for rank in parse_ras_answer(write_answer(document)).communicators[0].ranks] == [True, False]


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("rank",), -1),
        (("rank",), True),
        (("rank",), 2**70),
        (("rank",), "0"),
        (("pid",), 1.5),
        (("host",), ["10.0.0.1"]),
        (("host",), "evil\nhost"),
        (("host",), "h" * 65),
        (("status",), None),
        (("status", "abort_flag"), 1),
        (("status", "init_state"), None),
        (("collective_counts",), [1, 2]),
        (("collective_counts",), {"AllReduce": 1}),  # unlike its neighbour's
        (("collective_counts", "AllReduce"), -1),
        (("collective_counts", "AllReduce"), "many"),
    ],
)
def test_a_wrong_type_is_an_error_of_the_answer(place: tuple[str, ...], value: object) -> None:
    document = json.loads(json.dumps(DOCUMENT))
    found = document["communicators"][0]["ranks"][1]
    for key in place[:-1]:
        found = found[key]
    found[place[-1]] = value
    with pytest.raises(RasAnswerError):
        parse_ras_answer(json.dumps(document).encode())


def test_there_are_few_kinds_of_collectives() -> None:
    many = json.loads(json.dumps(DOCUMENT))
    for rank in many["communicators"][0]["ranks"]:
        rank["collective_counts"] = {str(kind): 1 for kind in range(65)}
    with pytest.raises(RasAnswerError, match="too many kinds"):
        parse_ras_answer(json.dumps(many).encode())


def test_a_rank_is_present_or_missing_and_jobs_have_an_end() -> None:
    twice = json.loads(json.dumps(DOCUMENT))
    twice["communicators"][0]["missing_ranks"][0]["rank"] = 0
    with pytest.raises(RasAnswerError, match="contradicts itself"):
        parse_ras_answer(json.dumps(twice).encode())
    gone = json.dumps(DOCUMENT["communicators"][0]["missing_ranks"][0])
    endless = ",".join(re.sub('"rank": 2', f'"rank": {number}', gone) for number in range(RANKS_MAX + 1))
    text = f'{{"communicators": [{{"hash": "0x1", "ranks": [], "missing_ranks": [{endless}]}}]}}'
    with pytest.raises(RasAnswerError, match="more than"):
        parse_ras_answer(text.encode())


@given(st.binary(max_size=300))
def test_any_bytes_are_an_answer_or_no_answer(data: bytes) -> None:
    try:
        parse_ras_answer(data)
    except RasAnswerError as error:
        assert len(str(error)) <= 200  # noqa: PT017 - both outcomes are right


@given(st.data())
def test_an_answer_with_anything_in_one_place_is_read_and_judged_or_refused(data: st.DataObject) -> None:
    text = json.dumps(DOCUMENT)
    values = [*re.finditer(r'-?\d+|"[^"]*"|true|false|[\[\]{},:]', text)]
    chosen = data.draw(st.sampled_from(values))
    anything = st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=9),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
        max_leaves=5,
    )
    new = json.dumps(data.draw(anything))
    try:
        read = parse_ras_answer((text[: chosen.start()] + new + text[chosen.end() :]).encode())
    except RasAnswerError:
        return
    find_suspects(read)
    assert not is_progress(count_launches(read), count_launches(read))


def test_nesting_without_end_is_an_error_of_the_answer() -> None:
    with pytest.raises(RasAnswerError):
        parse_ras_answer(b"[" * 100_000)
