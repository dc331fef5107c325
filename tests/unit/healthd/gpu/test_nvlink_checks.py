from __future__ import annotations

from collections.abc import Callable
from typing import Any

from healthd.findings.gpu_state import GpuState
from healthd.samples.nvml import Link

Gpu = Callable[..., GpuState]
UNKNOWN_MODEL = "NVIDIA X1000"


def links(up: int, down: int = 0, **errors: int) -> tuple[Link, ...]:
    return tuple(Link(number, active=number < up, **errors) for number in range(up + down))


def lasting(judge: Any, *states: GpuState, since: float = 0) -> set[str]:
    judge.raised(since, *states)
    raised: set[str] = judge.raised(since + 120, *states)
    return raised


def test_a_model_that_is_known_has_its_number_of_links(node: Callable[..., Any], gpu: Gpu) -> None:
    assert lasting(node("nvlink"), gpu(links=links(17, 1))) == {"inactive@0"}
    assert lasting(node("nvlink"), gpu(links=links(18))) == set()
    assert lasting(node("nvlink"), gpu(product="NVIDIA A100-SXM4-80GB", links=links(12))) == set()
    assert lasting(node("nvlink"), gpu(product="NVIDIA H200 NVL", links=links(12, 6))) == set()


def test_otherwise_siblings_and_the_past_tell(node: Callable[..., Any], gpu: Gpu) -> None:
    def group(first: int, others: int) -> list[GpuState]:
        counts = [first] + [12] * others
        return [gpu(i, product=UNKNOWN_MODEL, links=links(n, 12 - n)) for i, n in enumerate(counts)]

    assert lasting(node("nvlink"), *group(11, 4)) == {"inactive@0"}
    assert lasting(node("nvlink"), *group(11, 3)) == set(), "three prove nothing"
    judge = node("nvlink")
    judge.raised(0, *group(12, 0))
    assert lasting(judge, *group(10, 0), since=10) == {"inactive@0"}
    assert "inactive@0" in judge.unknown(200, *group(12, 0))
    assert "inactive@0" not in judge.say(320, *group(12, 0))


def test_no_links_at_all_mig_and_unknown_states_are_not_judged(node: Callable[..., Any], gpu: Gpu) -> None:
    assert lasting(node("nvlink"), gpu(links=links(0, 18))) == set(), "a virtual machine without any"
    assert lasting(node("nvlink"), gpu(0, {"mig_enabled": True}, links=links(4, 14))) == set()
    assert lasting(node("nvlink"), gpu(links=(Link(0), Link(1, active=True)))) == set()


def test_a_link_without_traffic_is_not_up_and_has_a_finding_of_its_own(node: Callable[..., Any], gpu: Gpu) -> None:
    silent = (*(Link(n, active=True, traffic_disabled=False) for n in range(17)), Link(17, False, True))
    judge = node("nvlink")
    assert lasting(judge, gpu(links=silent)) == {"inactive@0", "traffic_disabled@0"}
    fact = judge.say(121, gpu(links=silent))["traffic_disabled@0"]
    assert fact.summary == "the driver has disabled traffic on 1 of the 18 NVLinks of GPU 0"
    assert fact.evidence == {"links": "17"}
    assert "traffic_disabled@0" in judge.unknown(122, gpu()), "not read in this sweep"


def test_errors_count_by_their_rate_and_name_the_worst_link(node: Callable[..., Any], gpu: Gpu) -> None:
    judge = node("nvlink")
    before = (Link(0, active=True, recovery_errors=50), Link(7, active=True, recovery_errors=50, replay_errors=9))
    after = (Link(0, active=True, recovery_errors=50), Link(7, active=True, recovery_errors=53, replay_errors=99))
    assert judge.raised(0, gpu(product=UNKNOWN_MODEL, links=before)) == set()
    said = judge.say(60, gpu(product=UNKNOWN_MODEL, links=after))
    assert said["recovery_errors@0"].evidence == {"errors": 3, "link": 7, "window_s": 600}
    assert "recovery_errors@0" in judge.unknown(61, gpu(product=UNKNOWN_MODEL)), "not read in this sweep"
    judge.raised(1000, gpu(product=UNKNOWN_MODEL, links=after))
    assert "recovery_errors@0" not in judge.say(1600, gpu(product=UNKNOWN_MODEL, links=after))
