"""Whatever healthd finds out, its report is one that the controller takes: asked of the controller's own door."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from healthd.config import TTL_INTERVALS, ConfigError, RemediatorConfig, parse_node_config
from healthd.controller.controller_client import RequestRejected
from healthd.daemon_status import Status
from healthd.orders.order_store import OrderStore
from healthd.reporting.report_uplink import ReportUplink
from healthd.reporting.telemetry_subscription import TelemetrySubscription
from healthd.storage.database_writer import DatabaseWriter
from healthd.storage.node_database import NodeDatabase
from healthd.storage.pending_changes import PendingChanges
from healthd.trainer.beacons import beacon_page
from healthd.trainer.beacons.beacon import Beacon
from healthd.trainer.beacons.beacon_page import BeaconError
from healthd.trainer.beacons.rank_placement import RankPlacement
from remediator.api.handler_context import Refusal
from remediator.api.report_handlers import _check_update_bounds, _decode_report
from vocabulary.clock import ManualClock
from vocabulary.finding import Finding, Severity
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages import message_bounds
from vocabulary.messages.message_truncation import CUT
from vocabulary.messages.telemetry_messages import TelemetryPart
from vocabulary.messages.wire import (
    REPORT_BYTES_MAX,
    Gpu,
    ProductDigests,
    RankStatus,
    Report,
    ReportReply,
    StepWindow,
    Versions,
    encode_message,
)
from vocabulary.order import Order, OrderKind, OrderState, OrderUpdate

ODD = st.one_of(
    st.text(max_size=8), st.sampled_from(["x" * 5000, "a\0b", "\ud800", "\\u0000", "💥" * 3000, "\x01" * 400])
)
NUMBER = st.one_of(st.integers(-(2**80), 2**80), st.sampled_from([0, 2**63 - 1, 2**63, -(2**63)]))
FLOAT = st.floats()
HOST = Component(ComponentKind.HOST)


class Door:
    """The controller as far as its reader: what it refuses, and what came through."""

    def __init__(self, refuses: Callable[[Report], str] = lambda _report: "") -> None:
        self._refuses = refuses
        self.taken: list[Report] = []
        self.answers: list[OrderUpdate] = []
        self.calls = 0

    def report(self, report: Report) -> ReportReply:
        self.calls += 1
        if unwanted := self._refuses(report):
            raise RequestRejected("400: not this one", unwanted)
        body = encode_message(report)
        assert len(body) <= REPORT_BYTES_MAX
        try:
            self.taken.append(_decode_report(body, "n1"))
        except Refusal as error:
            raise RequestRejected(str(error), error.problem.finding) from error
        return ReportReply(report.changes[-1].seq if report.changes else 0, 1)

    def answer(self, update: OrderUpdate) -> None:
        encode_message(update)
        _check_update_bounds(update)
        self.answers.append(update)


def finding(name: str, **more: Any) -> Finding:
    known = {
        "id": name, "node": "n1", "check": "xid", "code": "79", "component": HOST, "severity": Severity.FATAL,
        "summary": "s", "first_seen": 1.0, "last_seen": 1.0, "origin": "o",
    }  # fmt: skip
    return Finding(**{**known, **more})


class Node:
    def __init__(self, place: Path) -> None:
        self.database = NodeDatabase(place / "db", 1.0)
        committer = DatabaseWriter(self.database, ManualClock())
        self.waiting = PendingChanges(committer)
        self.orders = OrderStore(committer, "n1")
        self.status = Status(node="n1", boot_id="b", at=1.0)
        clock = ManualClock()
        self.uplink = ReportUplink(
            config=RemediatorConfig(url="http://x", token_file=place / "t"), agent="a", waiting=self.waiting,
            orders=self.orders, status=lambda: self.status, clock=clock,
            watched=TelemetrySubscription(lambda back_s: TelemetryPart(back_s, ()), clock),
        )  # fmt: skip

    def commit(self, findings: list[Finding]) -> None:
        """These are durable, and wait for the controller."""
        self.waiting.add(self.database.commit(findings), self.database)
        self.status = replace(self.status, newest_change=self.waiting.newest)

    def send(self, door: Door) -> None:
        self.uplink.send(door)  # type: ignore[arg-type]  # what a report needs of a controller


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    found = Node(tmp_path)
    yield found
    found.database.close()


@settings(max_examples=60, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(text=ODD, number=NUMBER, size=FLOAT)
@example(text="x" * 5000, number=2**80, size=1e300)
@example(text="a\0b", number=-1, size=float("nan"))
def test_the_centre_takes_whatever_a_node_says(node: Node, text: str, number: int, size: float) -> None:
    odd = finding(
        "f1", check=text, code=text, summary=text, origin=text, boot_id=text, cleared_by=text, first_seen=size,
        last_seen=size, cleared_at=size, count=number, component=Component(ComponentKind.GPU, text, text, number),
        evidence={text: text, "n": number, "x": size} | {f"{n}": n for n in range(100)},
    )  # fmt: skip
    window = StepWindow(number, number, number, size, size, None, size)
    rank = RankStatus(
        text, number, number, number, number, number, text, size, size, section=text, sections={text: size}, role=text,
        pipeline_stage=number, gpu=text, windows=(window,) * 100,
        digests=ProductDigests(text, (text,) * 100, number, number, number),
    )  # fmt: skip
    node.status = Status(
        node="n1", boot_id=text, at=1.0, findings=(odd,), ranks=(rank,), gpus=(Gpu(number, text, text, text, text),) * 300,
        versions=Versions(driver=text, bios=text, vbios=(text,) * 300),
    )  # fmt: skip
    door = Door()
    node.send(door)
    (taken,) = door.taken
    assert [f.id for f in taken.active] == ["f1"]
    assert (len(taken.ranks), len(taken.gpus)) == (1, message_bounds.GPUS_MAX)
    assert CUT in taken.active[0].summary or len(text) <= message_bounds.TEXT_CHARS_MAX


def test_what_was_stored_by_an_earlier_release_is_told_too(node: Node) -> None:
    node.commit([finding("f1", summary="x" * 5000)])
    door = Door()
    node.send(door)
    assert door.taken[0].changes[0].finding.summary == "x" * (message_bounds.TEXT_CHARS_MAX - len(CUT)) + CUT
    assert (node.waiting.count(), node.waiting.rejected) == (0, 0)


def test_a_report_that_is_within_its_bounds_is_sent_as_it_is(node: Node) -> None:
    node.status = replace(node.status, findings=(finding("f1", evidence={"a": 1}),))
    door = Door()
    node.send(door)
    assert door.taken[0].active == node.status.findings


def test_more_than_fits_one_message_is_shortened_and_no_finding_is_left_out(node: Node) -> None:
    many = tuple(finding(f"f{n}", summary="x" * 2000, evidence={"k": "v" * 2000}) for n in range(4000))
    ranks = tuple(RankStatus("j", 0, n, 9999, 1, 1, "step", 1.0) for n in range(9999))
    node.status = replace(node.status, findings=many, ranks=ranks)
    door = Door()
    node.send(door)
    (taken,) = door.taken
    assert [f.id for f in taken.active] == [f.id for f in many]
    assert len(taken.ranks) == message_bounds.RANKS_MAX


def test_one_finding_that_is_refused_keeps_nothing_else_back(node: Node) -> None:
    """Whatever a controller has against it: healthd leaves that one out, once, and stays heard."""
    bad, good = finding("bad"), finding("good")
    node.commit([bad, good])
    node.status = replace(node.status, findings=(bad, good))

    def refuses(report: Report) -> str:
        held = (*report.active, *(change.finding for change in report.changes))
        return "bad" if any(f.id == "bad" for f in held) else ""

    door = Door(refuses)
    node.send(door)
    assert [c.finding.id for c in door.taken[0].changes] == ["good"]
    assert [f.id for f in door.taken[0].active] == ["good"]
    assert (door.calls, node.waiting.count(), node.waiting.rejected) == (2, 0, 1)
    node.send(door)
    assert (door.calls, len(door.taken)) == (3, 2)


def test_a_centre_that_refuses_what_was_not_sent_is_not_asked_for_ever(node: Node) -> None:
    door = Door(lambda _report: "nobody")
    with pytest.raises(RequestRejected):
        node.send(door)
    assert door.calls == 1


def test_an_answer_to_an_order_is_cut_too(node: Node) -> None:
    order = Order(
        id="o", kind=OrderKind.RUN_PREFLIGHT, node="n1", issued_at=1.0, expires_at=9e9, incident="i", reason="r"
    )
    node.orders.receive(order, 1.0)
    node.orders.answer(
        OrderUpdate(id="o", state=OrderState.FAILED, at=2.0, detail="a\0" + "x" * 99_999, data={"n": 2**80})
    )
    door = Door()
    node.send(door)
    (answer,) = door.answers
    assert answer.detail.endswith(CUT)
    assert answer.data == {"n": 2**63 - 1}


def test_a_report_interval_keeps_the_time_to_live_within_its_bounds() -> None:
    config = "remediator: {{url: 'http://x', token_file: /t, report_interval_s: {}}}"
    longest = parse_node_config(config.format(1200), "h.yaml").remediator.report_interval_s
    assert longest * TTL_INTERVALS == message_bounds.TTL_S_MAX
    assert message_bounds.TTL_S_MIN <= 0.1 * TTL_INTERVALS
    for wrong in ("1201", "0.01"):
        with pytest.raises(ConfigError, match="report_interval_s"):
            parse_node_config(config.format(wrong), "h.yaml")


def test_a_page_holds_no_name_that_a_report_could_not_carry(tmp_path: Path) -> None:
    assert beacon_page.NAME_CHARS_MAX == message_bounds.NAME_CHARS_MAX
    longest = Beacon.create(str(tmp_path), RankPlacement("x" * 255, 0, 0, 1))
    longest.close()
    with pytest.raises(BeaconError, match=r"identity\.job: has 256 characters, 255 are allowed.*HEALTHD_JOB"):
        Beacon.create(str(tmp_path), RankPlacement("x" * 256, 0, 0, 1))
