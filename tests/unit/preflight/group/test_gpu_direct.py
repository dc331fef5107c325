"""Whether NCCL used GPUDirect RDMA: its log, how a node reports it, and what a group makes of it."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

pytest.importorskip("torch")

from preflight.fault_localisation.localisation_records import Why
from preflight.group.coordinator import Coordinator, GroupLimits
from preflight.group.gpu_direct import GpuDirect, GpuDirectUse, parse_gpu_direct
from preflight.group.group_records import (
    ArrivalMessage,
    CoordinatorMessage,
    EndMessage,
    GroupDocument,
    NodeReport,
    RailMeasurement,
    RoundStep,
    StepAnswer,
)
from preflight.group.group_text import render_group_text
from preflight.group.launchers.rank_placement import RankPlacement
from preflight.group.member import GroupMember
from preflight.group.nccl_log import NcclLog
from preflight.results import Verdict
from tests.unit.preflight.group.nccl_logs import RELEASES, TCP, build_log
from vocabulary.clock import SystemClock

pytestmark = pytest.mark.torch
YES, NO = (
    GpuDirectUse(used=GpuDirect.YES, words="8 of 8 channels"),
    GpuDirectUse(used=GpuDirect.NO, words="0 of 8 channels"),
)
VARIABLES = ("NCCL_DEBUG", "NCCL_DEBUG_SUBSYS", "NCCL_DEBUG_FILE")
channels = st.lists(st.tuples(st.sampled_from(["send", "receive"]), st.booleans(), st.integers(0, 15)), max_size=12)


def print_channel(way: str, number: int, end: str, net: str = "IB") -> str:
    return f"n0:1:2 [0] NCCL INFO Channel {number:02d}/0 : 0[0] -> 1[0] [{way}] via NET/{net}/{number}{end}\n"


@pytest.mark.parametrize("release", RELEASES)
def test_each_release_of_nccl_is_read(release: str) -> None:
    assert parse_gpu_direct(build_log(release, direct=True)) == GpuDirectUse(
        used=GpuDirect.YES, words="2 of 2 channels"
    )
    without = parse_gpu_direct(build_log(release, direct=False))
    assert without.used is GpuDirect.NO
    assert without.words == "0 of 2 channels; NCCL disabled it for mlx5_0, mlx5_1"


@pytest.mark.parametrize(
    "log",
    [
        "",
        TCP,
        TCP.partition("n0:1:2 [0] NCCL INFO Channel")[0],
        "NCCL version 2.28.9+cuda13.0\n",
        build_log("2.28", direct=True).partition("n0:31842:31905 [0] NCCL INFO Channel")[0],
        "NET/IB : GPU Direct RDMA Disabled for HCA 0 'a'\nNET/IB : GPU Direct RDMA (DMABUF) enabled for HCA 1 'b'\n",
    ],
)
def test_without_rdma_or_without_a_connection_nothing_is_known(log: str) -> None:
    assert parse_gpu_direct(log) == GpuDirectUse()


def test_what_nccl_has_disabled_is_known_before_it_connects() -> None:
    log = build_log("2.21", direct=False).partition("n0:31842:31905 [0] NCCL INFO Channel")[0]
    assert parse_gpu_direct(log) == GpuDirectUse(used=GpuDirect.NO, words="NCCL disabled it for mlx5_0, mlx5_1")
    assert parse_gpu_direct(log + TCP) == GpuDirectUse(), "it used TCP"


def test_a_rank_may_send_through_another() -> None:
    assert parse_gpu_direct(print_channel("send", 3, "(1)/GDRDMA")).used is GpuDirect.YES
    assert parse_gpu_direct(print_channel("send", 3, "(1)")).used is GpuDirect.NO


def test_a_plug_in_may_have_a_name_of_several_words() -> None:
    assert parse_gpu_direct(print_channel("receive", 0, "/GDRDMA", "NCCL RDMA Plugin v10")).used is GpuDirect.YES
    assert parse_gpu_direct(print_channel("receive", 0, "", "AWS Libfabric")).used is GpuDirect.NO


@given(channels=channels, noise=st.lists(st.text(max_size=60)), order=st.randoms())
def test_all_receiving_channels_must_use_it_whatever_else_is_printed(
    channels: list[tuple[str, bool, int]], noise: list[str], order: Any
) -> None:
    lines = [print_channel(way, number, "/GDRDMA" if direct else "") for way, direct, number in channels]
    lines += [*TCP.splitlines(keepends=True), *(f"{text}\n" for text in noise)]
    order.shuffle(lines)
    received = [direct for way, direct, _ in channels if way == "receive"] or [direct for _, direct, _ in channels]
    expected = GpuDirect.UNKNOWN if not received else GpuDirect.YES if all(received) else GpuDirect.NO
    assert parse_gpu_direct("".join(lines)).used is expected


@given(st.text(), st.sampled_from([*RELEASES]), st.integers(0, 2000))
def test_a_log_that_is_cut_or_no_log_at_all_is_read(text: str, release: str, end: int) -> None:
    assert parse_gpu_direct(text) == GpuDirectUse()
    assert parse_gpu_direct(build_log(release, direct=True)[:end]).used is not GpuDirect.NO


@pytest.mark.parametrize("kept", [{}, {"NCCL_DEBUG": "WARN"}, {"NCCL_DEBUG": "version"}])
def test_the_log_is_kept_in_memory_and_warnings_are_passed_on_once(kept: dict[str, str]) -> None:
    environ, log = dict(kept), NcclLog()
    assert log.read() == ""
    log.open(environ)
    assert (environ["NCCL_DEBUG"], environ["NCCL_DEBUG_SUBSYS"]) == ("INFO", "INIT,NET")
    Path(environ["NCCL_DEBUG_FILE"]).write_text("n0:1:2 [0] NCCL INFO x\nn0:1:2 [0] net.cc:1 NCCL WARN y\n")
    assert log.read().count("\n") == 2
    assert log.take_warnings() == ["n0:1:2 [0] net.cc:1 NCCL WARN y"]
    assert log.take_warnings() == []


@pytest.mark.parametrize(
    ("name", "value"), [("NCCL_DEBUG", "INFO"), ("NCCL_DEBUG_FILE", "/x"), ("NCCL_DEBUG_SUBSYS", "ALL")]
)
def test_an_operators_own_log_stays(name: str, value: str) -> None:
    environ, log = {name: value}, NcclLog()
    log.open(environ)
    assert environ == {name: value}
    assert (log.read(), log.take_warnings()) == ("", [])


class Meeting:
    """A store in this process. `answers` are what each rank answers in every round."""

    def __init__(self, *answers: StepAnswer) -> None:
        self.answers = answers
        self.stored: dict[str, Any] = {}
        self.on_take = lambda _key: None

    def put(self, key: str, value: object) -> None:
        self.stored[key] = value

    def claim(self, key: str, value: object) -> None:
        self.stored[key] = value

    def check(self, _within_s: float) -> None:
        """There is no other group."""

    def take(self, key: str, kind: type, _within_s: float) -> Any:
        self.on_take(key)
        rank = int(key.rpartition("/")[2])
        if kind is ArrivalMessage:
            return ArrivalMessage(rank=rank, node=f"n{rank}", nonce=str(rank))
        if kind is NodeReport:
            return NodeReport(rank=rank, node=f"n{rank}", machine=f"m{rank}", backend="nccl")
        if kind is CoordinatorMessage:
            end = EndMessage(exit_code=0, heard={0: self.stored["here/0"].nonce})
            step = RoundStep(number=0, pairs=((0, 1),), pair_s=1.0, next_within_s=1.0)
            return CoordinatorMessage(end=end) if rank else CoordinatorMessage(step=step)
        return self.answers[rank]


def place(world: int) -> RankPlacement:
    return RankPlacement(rank=0, world=world, node="n0", address="127.0.0.1", port=1, launcher="test")


def test_a_node_reports_what_its_nccl_logged_and_its_self_test_inherits_no_log(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in VARIABLES:
        monkeypatch.setenv(name, "")
    meeting, said = Meeting(), []

    def print_log(key: str) -> None:
        if key == "here/1":
            text = build_log("2.28", direct=True) + "n0:1:2 [0] NCCL WARN NET/IB : port went down\n"
            Path(os.environ["NCCL_DEBUG_FILE"]).write_text(text)

    def look() -> NodeReport:
        assert {os.environ[name] for name in VARIABLES} == {""}
        return NodeReport(rank=0, node="n0", machine="m0")

    meeting.on_take = print_log
    GroupMember(place(2), meeting, (), (), said.append).take_part(look, 1.0)  # type: ignore[arg-type]  # a store of a test
    assert meeting.stored["answer/0/0"].gpu_direct == GpuDirectUse(used=GpuDirect.YES, words="2 of 2 channels")
    assert said[-1] == "n0:1:2 [0] NCCL WARN NET/IB : port went down"


def run_group(*uses: GpuDirectUse, slow: int = -1, expected: float | None = None, **slow_answer: Any) -> GroupDocument:
    """The document of a group whose nodes measure 40 GB/s, but for one."""
    answers = [
        StepAnswer(measured=(RailMeasurement(**(slow_answer if rank == slow else {"rate": 40.0})),), gpu_direct=use)
        for rank, use in enumerate(uses)
    ]
    meeting = Meeting(*answers)
    coordinator = Coordinator(
        place(len(uses)), meeting, GroupLimits(expected=expected), ((), ()), SystemClock(), lambda _: None
    )  # type: ignore[arg-type]  # a store of a test
    return coordinator.run()[1]


def test_a_minority_without_it_is_misconfigured_and_told_what_to_do() -> None:
    document = run_group(YES, YES, YES, NO)
    assert (document.verdict, document.culprits, document.exclude) == (Verdict.MISCONFIGURED, (), ())
    (reason,) = document.reasons
    assert reason.startswith("node n3 does not use GPUDirect RDMA (0 of 8 channels), unlike 3 others: run modprobe")
    assert all(word in reason for word in ("nvidia_peermem", "ACS", "firmware"))
    assert [node.gpu_direct.value for node in document.nodes] == ["yes", "yes", "yes", "no"]
    assert "GPUDirect RDMA: 3 yes, 1 no" in render_group_text(document)


def test_a_node_that_is_slow_without_it_is_not_broken() -> None:
    document = run_group(YES, YES, YES, NO, slow=3, rate=20.0)
    assert (document.verdict, document.culprits, document.suspects) == (Verdict.MISCONFIGURED, (), ())
    assert any("node n3" in reason and "at best 50%" in reason for reason in document.reasons)
    assert "modprobe nvidia_peermem" in document.reason


@pytest.mark.parametrize(
    "answer",
    [
        {"why": Why.ERROR, "wrong_words": 3, "words": "3 words arrived corrupt"},
        {"why": Why.HANG, "words": "did not end"},
    ],
)
def test_wrong_data_or_a_hang_of_such_a_node_is_still_its_fault(answer: dict[str, Any]) -> None:
    document = run_group(YES, YES, YES, NO, slow=3, **answer)
    assert document.verdict is Verdict.FAIL
    assert [one.where for one in document.culprits] == [("n3",)]
    assert any("modprobe nvidia_peermem" in reason for reason in document.reasons)


def test_a_slow_node_that_uses_it_is_a_culprit() -> None:
    document = run_group(YES, YES, NO, YES, YES, slow=0, rate=20.0)
    assert document.verdict is Verdict.FAIL
    assert [one.where for one in document.culprits] == [("n0",)]


def test_where_most_do_without_it_is_a_remark() -> None:
    for uses in ((NO, NO, NO, NO), (NO, NO, NO, YES)):
        document = run_group(*uses)
        assert document.verdict is Verdict.PASS
        assert any("of 4 nodes do not use GPUDirect RDMA (0 of 8 channels)" in remark for remark in document.remarks)


def test_of_two_nodes_the_one_without_it_is_named() -> None:
    assert run_group(YES, NO).reasons[0].startswith("node n1 does not use GPUDirect RDMA")


def test_a_slow_pair_of_which_one_end_does_without_it_accuses_neither() -> None:
    document = run_group(YES, NO, slow=1, rate=20.0, expected=40.0)
    assert (document.verdict, document.culprits, document.suspects) == (Verdict.MISCONFIGURED, (), ())


def test_without_rdma_nobody_hears_of_it() -> None:
    document = run_group(*[GpuDirectUse()] * 4)
    assert (document.verdict, document.remarks) == (Verdict.PASS, ())
    assert "GPUDirect" not in render_group_text(document)
