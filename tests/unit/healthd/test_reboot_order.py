"""The reboot order over real programs and a machine whose boot id the test changes."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from healthd.host import Host
from healthd.orders.order_task import make_order_update
from healthd.orders.reboot_order import RebootTask
from vocabulary.order import Order, OrderKind, OrderState, OrderUpdate

NOW = 1_700_000_000.0
ORDER = Order(id="o1", kind=OrderKind.REBOOT, node="n1", issued_at=NOW, expires_at=NOW + 60, incident="i", reason="r")
FRESH = make_order_update(ORDER, OrderState.RECEIVED, NOW, "")


@pytest.fixture
def machine(tmp_path: Path) -> Path:
    boot = tmp_path / "proc/sys/kernel/random/boot_id"
    boot.parent.mkdir(parents=True)
    boot.write_text("first\n")
    return boot


def task(machine: Path, answer: OrderUpdate, script: str) -> RebootTask:
    return RebootTask(ORDER, answer, [sys.executable, "-c", script], Host(proc=machine.parents[3]))


def until_answer(each: RebootTask, now: float = NOW) -> OrderUpdate:
    for _ in range(1000):
        update = each.step(now)
        if update is not None:
            return update
        time.sleep(0.01)
    raise AssertionError("no answer")


def test_the_boot_is_noted_before_anything_goes_down(machine: Path, tmp_path: Path) -> None:
    mark = tmp_path / "asked"
    each = task(machine, FRESH, f"open({str(mark)!r}, 'w')")
    noted = each.step(NOW)
    assert noted is not None
    assert (noted.state, noted.data["boot_id"]) == (OrderState.RUNNING, "first")
    assert not mark.exists()
    while not mark.exists():
        assert each.step(NOW + 1) is None
        time.sleep(0.01)
    each.close()


def test_under_another_boot_it_is_done_and_nothing_is_asked_again(machine: Path, tmp_path: Path) -> None:
    noted = task(machine, FRESH, "").step(NOW)
    assert noted is not None
    machine.write_text("second\n")
    mark = tmp_path / "asked"
    done = task(machine, noted, f"open({str(mark)!r}, 'w')").step(NOW + 300)
    assert done is not None
    assert (done.state, done.data["seconds"]) == (OrderState.SUCCEEDED, 300.0)
    assert not mark.exists()


def test_a_machine_that_says_no_fails_the_order_with_its_words(machine: Path) -> None:
    each = task(machine, FRESH, "import sys; sys.exit('not allowed here')")
    each.step(NOW)
    failed = until_answer(each)
    assert (failed.state, failed.detail) == (OrderState.FAILED, "exit 1: not allowed here")


def test_a_machine_that_does_not_go_down_is_said_when_the_time_is_up(machine: Path) -> None:
    each = task(machine, FRESH, "")
    each.step(NOW)
    for _ in range(500):
        assert each.step(NOW + 1) is None
        time.sleep(0.002)
    late = each.step(NOW + 61)
    assert late is not None
    assert (late.state, late.detail) == (OrderState.EXPIRED, "the machine did not reboot")


def test_a_program_that_is_not_there_is_named(machine: Path) -> None:
    each = RebootTask(ORDER, FRESH, ["/nowhere/reboot"], Host(proc=machine.parents[3]))
    each.step(NOW)
    assert until_answer(each).detail == "/nowhere/reboot cannot be started: No such file or directory"
