from __future__ import annotations

from pathlib import Path

import pytest

from healthd.checks.ethernet_checks import EthernetCheck, Limits
from healthd.collectors.ethernet import EthernetInterface, EthernetSample, read_ethernet
from healthd.collectors.machine_access import MachineAccess, SourceAbsent
from healthd.findings.facts import Moment, Raise, Unknown
from tests.nodes.machines import dgx

LIMITS = Limits(
    raise_after_s=30,
    clear_after_s=30,
    changes_in_window=4,
    changes_window_s=3600,
    errors_in_window=100,
    errors_window_s=3600,
)
UP = EthernetInterface("ens0f0", "0000:e0:00.0", "up", 25000, 2, 0, 0, 0, 0)


def raised(check: EthernetCheck, interface: EthernetInterface, at: float) -> list[str]:
    facts = check.judge(EthernetSample((interface,)), Moment(0, at))
    return [fact.code for fact in facts if isinstance(fact, Raise)]


def test_interfaces_with_a_device_are_read_and_no_others(tmp_path: Path) -> None:
    sample = read_ethernet(MachineAccess(str(dgx.build(tmp_path))), {})
    assert [interface.name for interface in sample.interfaces] == ["ens0f0", "ens1f0"]
    assert sample.interfaces[0] == UP


def test_a_link_that_is_down_has_no_speed(tmp_path: Path) -> None:
    dgx.build(tmp_path, {"/sys/class/net/ens0f0/speed": "-1", "/sys/class/net/ens0f0/operstate": "down"})
    first = read_ethernet(MachineAccess(str(tmp_path)), {}).interfaces[0]
    assert (first.speed_mbps, first.up) == (None, False)


def test_none_is_a_state(tmp_path: Path) -> None:
    with pytest.raises(SourceAbsent):
        read_ethernet(MachineAccess(str(tmp_path)), {})


def test_a_link_that_went_down_is_a_warning_once_it_lasts() -> None:
    check, down = EthernetCheck(LIMITS), UP._replace(state="down", speed_mbps=None)
    assert [raised(check, interface, at) for interface, at in ((UP, 0), (down, 10), (down, 40))] == [[], [], ["down"]]
    raised(check, UP, 50)
    assert raised(check, UP, 81) == []


def test_one_that_never_was_up_is_nobodys() -> None:
    check, down = EthernetCheck(LIMITS), UP._replace(state="down", speed_mbps=None)
    assert raised(check, down, 0) == raised(check, down, 100) == []


def test_one_that_got_slower_is_a_warning() -> None:
    check = EthernetCheck(LIMITS)
    slow = UP._replace(speed_mbps=10000)
    assert [raised(check, interface, at) for interface, at in ((UP, 0), (slow, 10), (slow, 40))] == [[], [], ["slower"]]


@pytest.mark.parametrize(
    ("changes", "code"), [({"carrier_changes": 6}, "flapping"), ({"crc_errors": 60, "receive_errors": 40}, "errors")]
)
def test_flaps_and_errors_count_within_their_window(changes: dict[str, int], code: str) -> None:
    check = EthernetCheck(LIMITS)
    assert raised(check, UP, 0) == []
    assert raised(check, UP._replace(**changes), 30) == [code]
    raised(check, UP._replace(**changes), 3000)
    assert raised(check, UP._replace(**changes), 7000) == []


def test_what_cannot_be_read_is_unknown() -> None:
    dumb = EthernetInterface("ens0f0", "", "", None, None, None, None, None, None)
    facts = EthernetCheck(LIMITS).judge(EthernetSample((dumb,)), Moment(0, 0))
    assert [fact.code for fact in facts if isinstance(fact, Unknown)] == ["down", "slower", "flapping", "errors"]
