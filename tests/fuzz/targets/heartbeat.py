"""A heartbeat from a node that may lie: refused, or taken by the registry so that every view of it can be sent."""

from __future__ import annotations

import msgspec

from remediator.fleet.report_registry import ReportRegistry
from tests.fuzz.target import Target
from vocabulary.health import Health
from vocabulary.messages.heartbeat import RANK, SINGLE, WINDOW, Heartbeat, decode_heartbeat
from vocabulary.messages.wire import RankStatus, Report, WireError

REPORT = Report(
    version=1, node="n", boot_id="b", agent="a", seq=1, sent_at=1.0, ttl_s=30.0, health=Health.HEALTHY,
    ranks=(RankStatus("j", 0, 0, 1, 1, 5, "step", 1.0, sections_median={"communication": 0.1}),),
)  # fmt: skip
_RANK = RANK.pack(9, 2.0, 0.5, 0.5, 0, 1, 1, 1)
GOOD = Heartbeat(
    1, "a", 1, 2, 2.0, ("step", ""), _RANK, SINGLE.pack(0.25), WINDOW.pack(1, 8, 3, 0.5, *[float("nan")] * 5)
)


def take(data: bytes) -> None:
    """Whatever is accepted can be shown."""
    registry = ReportRegistry()
    registry.take(REPORT, 1.0)
    registry.mark_applied("n", frozenset())
    try:
        entry = registry.beat("n", decode_heartbeat(data), 2.0)
    except WireError:
        return
    if entry is None:
        return
    msgspec.json.encode(entry.whole_ranks())
    for share in entry.shares:
        msgspec.json.encode((share.own_s, share.steps_s, share.phases, share.progress_of(0)))


TARGET = Target(take, (msgspec.msgpack.encode(GOOD),))
