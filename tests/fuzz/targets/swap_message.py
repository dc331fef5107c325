"""What a launcher, or whoever else has an account on the node, sends healthd about swaps."""

from __future__ import annotations

from healthd.swap_reports.swap_endpoint import Caller, SwapEndpoint
from healthd.trainer.beacons.job_owners import JobClaimants
from tests.fuzz.target import Target
from vocabulary.clock import ManualClock
from vocabulary.health import Health
from vocabulary.messages.wire import Report, decode_report, encode_message


def judge(data: bytes) -> None:
    """An answer for every message, and a report that the controller takes after it."""
    endpoint = SwapEndpoint(lambda: {"j": JobClaimants((1,))}, ManualClock(), proc="/nonexistent")
    status, _, _ = endpoint.answer(data, Caller(1, 1))
    if status not in (200, 400, 403):
        raise AssertionError(f"an answer that is none: {status}")
    report = Report(
        version=1, node="n", boot_id="b", agent="a", seq=1, sent_at=1.0, ttl_s=30.0, health=Health.HEALTHY,
        swaps=endpoint.current(),
    )  # fmt: skip
    if decode_report(encode_message(report)) != report:
        raise AssertionError("the controller reads something else")


TARGET = Target(
    judge,
    (
        (
            b'{"job":"j","swaps":[{"job":"j","attempt":1,"at":1700000000.5,"outcome":"swapped","generation":1,"lost":'
            b'[{"rank":1,"node":"n1","after":"n2"}],"lost_ranks":1,"seconds":0.261,"phases":{"met":0.026},"lost_steps":0}]}'
        ),
        b'{"job":"j","swaps":[]}',
    ),
)
