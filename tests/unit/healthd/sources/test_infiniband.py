from __future__ import annotations

from pathlib import Path

import pytest

from healthd.checks.infiniband_checks import InfinibandCheck, Limits
from healthd.collectors.infiniband import IbPort, InfinibandSample, parse_expected_rates, read_infiniband
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.findings.facts import Moment, Raise, Unknown
from tests.nodes.machines import dgx

LIMITS = Limits(
    raise_after_s=30,
    clear_after_s=30,
    flaps_in_window=3,
    flaps_window_s=3600,
    symbol_errors_in_window=100,
    symbol_errors_window_s=3600,
    congestion_ticks_per_s=1e6,
    congestion_window_s=60,
)
PORT = IbPort(
    device="mlx5_0",
    port="1",
    link_layer="InfiniBand",
    state="ACTIVE",
    physical="LinkUp",
    rate_gbps=400.0,
    firmware="28.39.1002",
    board="MT_0000000838",
    pci="",
    symbol_errors=0,
    link_downed=0,
    link_recoveries=0,
    receive_errors=0,
    transmit_discards=0,
    transmit_wait_ticks=0,
    out_of_sequence=0,
    retransmits=0,
    congestion_sent=0,
    congestion_handled=0,
)
OTHERS = tuple(PORT._replace(device=f"mlx5_{number}") for number in range(1, 8))


def raised(check: InfinibandCheck, port: IbPort, at: float, **expected: float) -> list[str]:
    facts = check.judge(InfinibandSample((port, *OTHERS), expected), Moment(0, at))
    return [f"{fact.component.name} {fact.code}" for fact in facts if isinstance(fact, Raise)]


def test_every_port_is_read(tmp_path: Path) -> None:
    sample = read_infiniband(MachineAccess(str(dgx.build(tmp_path))), {"expected": ("mlx5_0:400",)})
    assert len(sample.ports) == 8
    assert sample.ports[0] == PORT
    assert sample.expected == {"mlx5_0": 400.0}


def test_a_machine_without_adapters_is_a_state(tmp_path: Path) -> None:
    with pytest.raises(SourceAbsent):
        read_infiniband(MachineAccess(str(tmp_path)), {})


@pytest.mark.parametrize("word", ["mlx5_0", "mlx5_0:fast", "mlx5_0:4.0.0", ":"])
def test_an_expectation_of_another_form_is_refused(word: str) -> None:
    with pytest.raises(ValueError, match="DEVICE:GBPS"):
        parse_expected_rates((word,))


def test_a_port_that_went_down_takes_no_new_work() -> None:
    check = InfinibandCheck(LIMITS)
    down = PORT._replace(state="DOWN", physical="Polling", rate_gbps=10.0)
    assert [raised(check, port, at) for port, at in ((PORT, 0), (down, 10), (down, 40))] == [[], [], ["mlx5_0/1 down"]]
    assert raised(check, PORT, 50) == []


def test_a_port_that_never_was_up_is_nobodys_unless_it_is_expected() -> None:
    down = PORT._replace(state="DOWN", physical="Disabled")
    check = InfinibandCheck(LIMITS)
    assert raised(check, down, 0) == raised(check, down, 100) == []
    assert raised(check, down, 110, mlx5_0=400.0) == []
    assert raised(check, down, 150, mlx5_0=400.0) == ["mlx5_0/1 down"]


def test_a_port_slower_than_its_siblings_is_a_warning() -> None:
    check, slow = InfinibandCheck(LIMITS), PORT._replace(rate_gbps=200.0)
    assert [raised(check, slow, at) for at in (0, 30)] == [[], ["mlx5_0/1 slow"]]


def test_too_few_siblings_say_nothing() -> None:
    sample = InfinibandSample((PORT._replace(rate_gbps=200.0), *OTHERS[:2]), {})
    check = InfinibandCheck(LIMITS)
    for at in (0, 60):
        facts = check.judge(sample, Moment(0, at))
    assert not [fact for fact in facts if isinstance(fact, Raise)]
    assert any(isinstance(fact, Unknown) and fact.code == "slow" for fact in facts)


@pytest.mark.parametrize(
    ("field", "growth", "code"),
    [
        ("link_downed", 3, "flapping"),
        ("symbol_errors", 100, "symbol_errors"),
        ("transmit_wait_ticks", 60_000_000, "congested"),
    ],
)
def test_counters_that_grow_fast_are_warnings(field: str, growth: int, code: str) -> None:
    check = InfinibandCheck(LIMITS)
    raised(check, PORT, 0)
    assert raised(check, PORT._replace(**{field: growth - 1}), 30) == []
    assert raised(check, PORT._replace(**{field: growth}), 59) == [f"mlx5_0/1 {code}"]
