"""Orders performed on real beacon pages and with real programs."""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from healthd.host import CommandResult, Host
from healthd.orders.order_task import HealthVerification, make_order_update
from healthd.orders.program_order import ProgramTask, fill_arguments, judge_preflight, judge_reset, parse_last_object
from healthd.orders.trainer_order import TrainerTask
from healthd.trainer.beacons.beacon import Beacon, RankPlacement
from healthd.trainer.beacons.beacon_page import Acknowledgement, MailboxOrder, OrderOutcome
from healthd.trainer.beacons.mailbox import post_order
from vocabulary.order import Order, OrderKind, OrderState, OrderUpdate

NOW = 1_700_000_000.0


def order(kind: OrderKind = OrderKind.CHECKPOINT_THEN_EJECT, **more: object) -> Order:
    base: dict[str, object] = {"id": "o1", "node": "n1", "issued_at": NOW, "expires_at": NOW + 60, "job": "j"}
    return Order(kind=kind, incident="i", reason="r", **(base | more))  # type: ignore[arg-type]  # by name


def received(each: Order) -> OrderUpdate:
    return make_order_update(each, OrderState.RECEIVED, NOW, "")


class Ranks:
    """Pages of ranks that live in this very process."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.beacons: list[Beacon] = []

    def add(self, rank: int, job: str = "j", attempt: int = 1) -> Beacon:
        beacon = Beacon.create(str(self.directory), RankPlacement(job, attempt, rank, 2, rank, "n1"))
        self.beacons.append(beacon)
        return beacon

    def task(self, each: Order, answer: OrderUpdate | None = None) -> TrainerTask:
        return TrainerTask(each, answer or received(each), str(self.directory))


@pytest.fixture
def ranks(tmp_path: Path) -> Iterator[Ranks]:
    ranks = Ranks(tmp_path)
    yield ranks
    for beacon in ranks.beacons:
        beacon.close()


def left(order_id: str = "o1", *, saved: float = NOW + 2, outcome: OrderOutcome = OrderOutcome.LEFT) -> Acknowledgement:
    return Acknowledgement(order_id, outcome, NOW, 7, NOW + 1, saved, "/c/7", NOW + 3)


def step(task: TrainerTask, now: float = NOW) -> OrderUpdate:
    update = task.step(now)
    assert update is not None
    return update


def test_no_rank_here_is_soon_done(ranks: Ranks) -> None:
    ranks.add(0, job="another")
    update = step(ranks.task(order()))
    assert (update.state, update.data) == (OrderState.SUCCEEDED, {"ranks": 0})


def test_only_the_newest_attempt_is_ordered(ranks: Ranks) -> None:
    old, new = ranks.add(0, attempt=1), ranks.add(0, attempt=2)
    assert step(ranks.task(order())).state is OrderState.RUNNING
    assert old.poll() is None
    assert new.poll() is not None


def test_a_relaunched_job_is_not_ordered_again_after_a_restart_of_the_daemon(ranks: Ranks) -> None:
    first = ranks.add(0, attempt=1)
    update = step(ranks.task(order()))
    relaunched = ranks.add(0, attempt=2)
    first.acknowledge(left())
    task = ranks.task(order(), update)
    assert step(task).state is OrderState.RUNNING
    assert relaunched.poll() is None
    done = step(task)
    assert (done.state, done.data["mailbox_at"]) == (OrderState.SUCCEEDED, update.data["mailbox_at"])


@pytest.mark.parametrize(
    ("outcome", "saved", "state"),
    [
        (OrderOutcome.LEFT, NOW + 2, OrderState.SUCCEEDED),
        (OrderOutcome.FAILED, NOW + 2, OrderState.SUCCEEDED),  # saved, but its process group would not end
        (OrderOutcome.FAILED, 0.0, OrderState.FAILED),
        (OrderOutcome.CANCELLED, 0.0, OrderState.FAILED),
        (OrderOutcome.EXPIRED, 0.0, OrderState.EXPIRED),
    ],
)
def test_how_the_last_rank_left_decides(ranks: Ranks, outcome: OrderOutcome, saved: float, state: OrderState) -> None:
    beacon = ranks.add(0)
    task = ranks.task(order())
    step(task)
    assert task.step(NOW) is None, "nothing new, nothing said"
    beacon.acknowledge(left(saved=saved, outcome=outcome))
    assert step(task).state is state


@pytest.mark.parametrize(("outcome", "state"), [(OrderOutcome.LEFT, "succeeded"), (OrderOutcome.FAILED, "failed")])
def test_to_go_back_all_must_have_left_and_none_have_saved(ranks: Ranks, outcome: OrderOutcome, state: str) -> None:
    beacons = [ranks.add(rank) for rank in range(2)]
    task = ranks.task(order(OrderKind.REVERT, before_step=4))
    step(task)
    mailed = beacons[0].poll()
    assert mailed is not None
    assert (mailed.kind, mailed.before_step) == ("revert", 4)
    beacons[0].acknowledge(left(saved=0.0))
    beacons[1].acknowledge(left(saved=0.0, outcome=outcome))
    assert step(task).state.value == state


def test_a_rank_that_dies_without_a_word_fails_the_save_but_not_the_abort(ranks: Ranks) -> None:
    child = os.fork()
    if child == 0:
        Beacon.create(str(ranks.directory), RankPlacement("j", 1, 0, 1, 0, "n1"))
        time.sleep(60)  # until it is killed
        os._exit(0)
    while not list(ranks.directory.glob("*.beacon")):
        time.sleep(0.01)  # the child is on its way
    tasks = [ranks.task(order(id="save")), ranks.task(order(OrderKind.ABORT, id="abort"))]
    first = step(tasks[0])
    assert first.state is OrderState.RUNNING
    second = step(tasks[1])
    os.kill(child, 9)
    os.waitpid(child, 0)
    save, abort = step(tasks[0]), step(tasks[1])
    assert (save.state, save.detail) == (OrderState.FAILED, "rank 0 ended without an answer")
    assert abort.state is OrderState.SUCCEEDED
    assert second.data["ranks"] == 1


def test_an_order_replaced_by_another_is_over(ranks: Ranks) -> None:
    beacon = ranks.add(0)
    task = ranks.task(order())
    step(task)
    post_order(beacon.path, MailboxOrder("o2", "abort", "worse", (), NOW + 9))
    assert step(task).state is OrderState.FAILED


def test_a_frozen_rank_fails_the_order_at_its_expiry(ranks: Ranks) -> None:
    ranks.add(0)
    ranks.add(1).acknowledge(left())
    task = ranks.task(order())
    step(task)
    step(task)
    update = step(task, NOW + 61)
    assert update.state is OrderState.FAILED
    assert f"rank 0 (pid {os.getpid()})" in update.detail


def test_a_broken_page_spares_the_others(ranks: Ranks) -> None:
    beacon = ranks.add(0)
    (ranks.directory / "j.1.1.beacon").write_bytes(b"rubbish")
    assert step(ranks.task(order())).state is OrderState.RUNNING
    assert beacon.poll() is not None


def run_to_end(task: ProgramTask) -> OrderUpdate | HealthVerification:
    while True:
        news = task.step(time.time())
        if isinstance(news, HealthVerification) or (news is not None and news.state.final):
            return news
        time.sleep(0.01)  # the program is at work


def program(script: str, *, lasts_s: float = 60.0, judge: object = judge_reset) -> ProgramTask:
    each = order(OrderKind.RESET_GPU, gpu="GPU-1", expires_at=time.time() + lasts_s)
    return ProgramTask(each, received(each), [sys.executable, "-c", script], Host(), judge)  # type: ignore[arg-type]  # either


def test_a_program_that_ends_well_is_a_proof() -> None:
    end = run_to_end(program("print('x' * 3_000_000)"))
    assert isinstance(end, HealthVerification)
    assert (end.gpu, end.by, end.whole_node) == ("GPU-1", "reset o1", False)
    assert "pid" not in end.answer.data


def test_a_program_that_fails_is_quoted() -> None:
    end = run_to_end(program("import sys; sys.exit('GPU is in use by pid 7')"))
    assert isinstance(end, OrderUpdate)
    assert (end.state, end.detail) == (OrderState.FAILED, "exit 1: GPU is in use by pid 7")


def test_a_program_that_does_not_end_is_ended_with_all_it_started() -> None:
    script = "import subprocess, time; subprocess.Popen(['sleep', '61.25']); time.sleep(60)"
    end = run_to_end(program(script, lasts_s=0.5))
    assert isinstance(end, OrderUpdate)
    assert (end.state, end.detail) == (OrderState.FAILED, "killed when the order expired")
    lines = [path.read_bytes() for path in Path("/proc").glob("[0-9]*/cmdline") if _readable(path)]
    assert not any(b"61.25" in line and line.startswith(b"sleep") for line in lines)


def _readable(path: Path) -> bool:
    try:
        path.read_bytes()
    except OSError:
        return False
    return True


def test_a_program_that_is_not_there_is_named() -> None:
    each = order(OrderKind.RESET_GPU, gpu="g", expires_at=time.time() + 9)
    end = run_to_end(ProgramTask(each, received(each), ["no-such-program"], Host(), judge_reset))
    assert isinstance(end, OrderUpdate)
    assert end.detail == "no-such-program cannot be started: No such file or directory"


def test_after_a_restart_what_is_left_of_the_old_run_is_ended_first() -> None:
    each = order(OrderKind.RUN_PREFLIGHT, expires_at=time.time() + 60)
    first = ProgramTask(each, received(each), ["sleep", "60"], Host(), judge_preflight)
    running = first.step(time.time())
    assert isinstance(running, OrderUpdate)
    pid = int(running.data["pid"])
    second = ProgramTask(each, running, ["true"], Host(), judge_reset)
    second.step(time.time())
    while Host().process_start(pid) is not None:
        time.sleep(0.01)  # the signal is on its way
    first.close()
    second.close()


def test_it_waits_until_all_is_ready_or_its_time_is_over() -> None:
    each = order(OrderKind.RESET_GPU, gpu="g")
    task = ProgramTask(each, received(each), ["true"], Host(), judge_reset, lambda: False)
    assert task.step(NOW) is None
    late = task.step(NOW + 61)
    assert isinstance(late, OrderUpdate)
    assert late.state is OrderState.EXPIRED


def finished(document: object, code: int = 0) -> CommandResult:
    text = document if isinstance(document, str) else json.dumps(document, indent=2)
    return CommandResult(code, text, "words on standard error", overdue=False)


@pytest.mark.parametrize(
    ("document", "code", "passes"),
    [
        ({"verdict": "pass"}, 0, True),
        ({"verdict": "pass", "complete": True, "injected": []}, 0, True),
        ({"verdict": "pass", "complete": False}, 0, False),
        ({"verdict": "pass", "injected": ["hbm:flip"]}, 0, False),
        ({"verdict": "pass"}, 1, False),
        ({"verdict": "fail", "reason": "GPU 3: a bit"}, 1, False),
        ({"verdict": "inconclusive"}, 0, False),
        ({}, 0, False),
        ("no JSON", 0, False),
        ("[1]", 0, False),
    ],
)
def test_only_a_clear_and_whole_pass_passes(document: object, code: int, *, passes: bool) -> None:
    each = order(OrderKind.RUN_PREFLIGHT, level="gate")
    end = judge_preflight(each, finished(document, code), {}, NOW)
    assert isinstance(end, HealthVerification) is passes
    if isinstance(end, OrderUpdate):
        assert end.state is OrderState.FAILED


def test_json_may_follow_other_output() -> None:
    assert parse_last_object('warming up\n{"verdict": "pass"}\n') == {"verdict": "pass"}


def test_words_are_put_in_whole_and_never_interpreted() -> None:
    words = {"gpu": "$(rm -rf /) {level}", "level": "gate"}
    assert fill_arguments(["a", "{gpu}", "-l={level}", "{unknown}"], {"level": "gate", "gpu": "x;y"}) == [
        "a",
        "x;y",
        "-l=gate",
        "{unknown}",
    ]
    assert fill_arguments(["{gpu}"], {"gpu": words["gpu"]}) == ["$(rm -rf /) {level}"]


def test_an_answer_carries_the_worst_of_each_figure() -> None:
    def figure(name: str, value: object, margin: float | None = None) -> dict[str, object]:
        return {
            "name": name,
            "value": value,
            "unit": "GB/s",
            "setting": "s",
            **({} if margin is None else {"margin": margin}),
        }

    results: list[object] = [
        {"test": "a", "figures": [figure("copy_rate", 30.0), figure("temperature_max", 90.0, -0.1)]},
        {"test": "b", "figures": [figure("copy_rate", 20.0), figure("temperature_max", 60.0, 0.3), figure("odd", "x")]},
        {"test": "c", "figures": "nonsense"},
        "nonsense",
    ]
    document = json.dumps({"verdict": "pass", "complete": True, "results": results})
    end = judge_preflight(order(OrderKind.RUN_PREFLIGHT), finished(document, 0), {}, NOW)
    assert isinstance(end, HealthVerification)
    assert {name: value for name, value in end.answer.data.items() if name.startswith("figure")} == {
        "figure copy_rate GB/s s": 20.0,
        "figure temperature_max GB/s s": 90.0,
    }
