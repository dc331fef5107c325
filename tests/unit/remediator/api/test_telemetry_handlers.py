"""Who looks at a node through the API, and what a node may and may not do with that."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from remediator.fleet.telemetry_cache import REQUEST_S
from tests.unit.remediator.api.in_process_controller import Inside
from vocabulary.finding import Finding, Severity
from vocabulary.health import Health
from vocabulary.identity import Component, ComponentKind
from vocabulary.messages.telemetry_messages import BUCKET_S, BUCKETS, TelemetryBlock, TelemetryPart, bucket_of
from vocabulary.messages.wire import FindingChange, Gpu, Report, ReportReply, decode_message, encode_message

GPU = Gpu(3, "GPU-3", "0000:3b:00.0", "NVIDIA H200")
POLL_S = 20


@pytest.fixture
def tell(shared: Inside) -> Callable[..., ReportReply]:
    """Reports of node n1, each newer than the one before."""
    number = iter(range(1, 1000))
    agent = uuid.uuid4().hex

    def report(part: bytes | None = None, *changes: FindingChange) -> ReportReply:
        message = Report(
            version=1, node="n1", boot_id="b", agent=agent, seq=next(number), sent_at=1.0, ttl_s=30.0,
            health=Health.HEALTHY, gpus=(GPU,), changes=changes, active=tuple(change.finding for change in changes),
            telemetry=msgspec.UNSET if part is None else msgspec.Raw(part),
        )  # fmt: skip
        answer = shared.call("POST", "/v1/nodes/n1/report", "n1", encode_message(message))
        assert answer.status == 200, answer.body
        return decode_message(answer.body, ReportReply)

    report(None)
    return report


def part(value: float = 61.0, gpu: str = GPU.pci) -> bytes:
    monotonic = 1e6
    return encode_message(
        TelemetryPart(monotonic, (TelemetryBlock(gpu, bucket_of(monotonic), {"temperature": (value,)}),))
    )


def look(shared: Inside, who: str = "vic", query: str = "") -> Any:
    answer = shared.call("GET", f"/v1/nodes/n1/telemetry{query}", who)
    assert answer.status == 200, answer.body
    return answer.json()


def finding() -> FindingChange:
    gpu = Component(ComponentKind.GPU, GPU.uuid, GPU.pci, GPU.index)
    return FindingChange(1, Finding(
        id="f1", node="n1", check="ecc", code="corrected", component=gpu, severity=Severity.WARNING, summary="…",
        first_seen=1.0, last_seen=1.0, origin="1",
    ))  # fmt: skip


def dropped(shared: Inside, why: str) -> float:
    page = shared.call("GET", "/metrics").body.decode()
    lines = [
        line for line in page.splitlines() if line.startswith(f'remediator_telemetry_dropped_total{{why="{why}"}}')
    ]
    return float(lines[0].rpartition(" ")[2]) if lines else 0.0


def test_a_question_becomes_a_wish_and_the_wish_an_answer(shared: Inside, tell: Callable[..., ReportReply]) -> None:
    look(shared)
    wish = tell(None).telemetry
    assert wish is not None
    assert 0 < wish.lasts_s <= REQUEST_S
    assert wish.back_s <= BUCKETS * BUCKET_S
    assert tell(part(77.0)).telemetry is not None, "while somebody looks it goes on"
    view = look(shared)
    (series,) = view["series"]
    assert (series["gpu"], series["name"], series["unit"], series["values"]) == (3, "temperature", "°C", [77.0])
    assert view["node"] == "n1"
    assert view["until"] > view["at"]


def test_who_waits_is_answered_when_the_node_tells(tmp_path_factory: pytest.TempPathFactory) -> None:
    centre = Inside(tmp_path_factory.mktemp("waits"))
    try:
        report = Report(
            version=1, node="n1", boot_id="b", agent="a", seq=1, sent_at=1.0, ttl_s=30.0, health=Health.HEALTHY, gpus=(GPU,)
        )  # fmt: skip
        assert centre.call("POST", "/v1/nodes/n1/report", "n1", encode_message(report)).status == 200
        poll = centre.begin("GET", f"/v1/nodes/n1/orders?wait_s={POLL_S}", "n1")
        looking = centre.begin("GET", "/v1/nodes/n1/telemetry?wait_s=10", "vic")
        told = poll.result(POLL_S).json()
        assert told["orders"] == []
        assert told["telemetry"]["back_s"] == BUCKETS * BUCKET_S
        assert not looking.done()
        again = msgspec.structs.replace(report, seq=2, telemetry=msgspec.Raw(part()))
        assert centre.call("POST", "/v1/nodes/n1/report", "n1", encode_message(again)).status == 200
        assert looking.result(10).json()["series"]
        second = centre.begin("GET", "/v1/nodes/n1/orders?wait_s=0", "n1").result(POLL_S).json()
        assert second == {"orders": []}, "a poll that is told of the wish once is not ended by it again"
    finally:
        centre.close()


@pytest.mark.parametrize(
    ("bad", "why"),
    [
        (b"17", "cannot be read"),
        (b'{"monotonic":"\xff"}', "cannot be read"),
        (b'"' + b"x" * 300_000 + b'"', "longer than 262144 bytes"),
        (part(gpu="0000:00:00.0"), "of a GPU that the report does not name"),
        (part(gpu="<script>"), "names a GPU by an invalid PCI address"),
    ],
)
def test_a_bad_part_is_dropped_and_counted_and_spoils_nothing_else(
    shared: Inside, tell: Callable[..., ReportReply], bad: bytes, why: str
) -> None:
    look(shared)
    tell(part(50.0))
    before, counted = look(shared)["series"], dropped(shared, why)
    assert tell(bad, finding()).acked_seq == 1
    assert "<script>" not in json.dumps(look(shared))
    assert [series["values"] for series in look(shared)["series"]] == [series["values"] for series in before]
    assert dropped(shared, why) == counted + 1
    found = shared.call("GET", "/v1/nodes/n1", "vic").json()["findings"]
    assert [each["id"] for each in found] == ["f1"]


def test_an_old_report_that_comes_late_changes_nothing(shared: Inside, tell: Callable[..., ReportReply]) -> None:
    assert tell is not None  # the node is known
    look(shared)
    report = Report(
        version=1, node="n1", boot_id="b", agent="late", seq=9, sent_at=1.0, ttl_s=30.0, health=Health.HEALTHY,
        gpus=(GPU,), telemetry=msgspec.Raw(part(50.0)),
    )  # fmt: skip
    older = msgspec.structs.replace(report, seq=8, telemetry=msgspec.Raw(part(99.0)))
    for each in (report, older):
        assert shared.call("POST", "/v1/nodes/n1/report", "n1", encode_message(each)).status == 200
    assert [series["values"] for series in look(shared)["series"]] == [[50.0]]


def test_who_may_look(shared: Inside, tell: Callable[..., ReportReply]) -> None:
    assert tell is not None
    for who, status in (("vic", 200), ("ann", 200), ("n1", 403), ("n2", 403), ("nobody", 401)):
        assert shared.call("GET", "/v1/nodes/n1/telemetry", who).status == status
    assert shared.call("GET", "/v1/nodes/never-heard-of/telemetry", "vic").status == 404
    for wait in ("-1", "11", "nan", "soon"):
        assert shared.call("GET", f"/v1/nodes/n1/telemetry?wait_s={wait}", "vic").status == 400
