"""One rank's guard, and two of them in one process with a shared store. The whole thing in real processes: tests/e2e."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from healthd.trainer.agreement import LocalStore, Store
from healthd.trainer.beacons.beacon import Beacon, MailboxOrder, NullBeacon, Phase, RankPlacement, read_page
from healthd.trainer.beacons.beacon_page import Acknowledgement, OrderOutcome
from healthd.trainer.beacons.mailbox import post_order
from healthd.trainer.beacons.rank_placement import RankGpu
from healthd.trainer.exit_codes import ExitCode, Leave
from healthd.trainer.framework import Device, Framework, NoFramework
from healthd.trainer.guard import Guard
from vocabulary.clock import ManualClock

pytestmark = pytest.mark.usefixtures("step_writer")
ORDER = MailboxOrder("o1", "checkpoint_then_eject", "row remap pending", ("n1",), 2e9)
MakeGuard = Callable[..., Guard]


class Recorder(NoFramework):
    """A framework that tells what was asked of it."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def synchronize(self) -> None:
        self.calls.append("synchronize")

    def abort(self) -> None:
        self.calls.append("abort")

    def teardown(self) -> None:
        self.calls.append("teardown")


class NoGpu:
    """A GPU that never gets anywhere."""

    def gpu(self) -> RankGpu:
        return RankGpu("GPU-1", "0000:3b:00.0", 1)

    def mark(self) -> object:
        return object()

    def passed(self, mark: object) -> bool:
        return mark is None

    def between(self, earlier: object, later: object) -> float:
        raise AssertionError(f"{earlier} and {later} have not passed")

    def free(self, marks: list[object]) -> None:
        raise AssertionError(f"{marks} have not passed")

    def hand_over(self, value: object) -> None:
        assert value is not None


class GoneStore:
    """A store whose server has died."""

    def add(self, key: str, amount: int, /) -> int:
        raise ConnectionError(f"{key} {amount}: connection reset by peer")

    def compare_set(self, key: str, expected: str, desired: str, /) -> bytes:
        raise ConnectionError(f"{key} {expected} {desired}: connection reset by peer")


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def make(tmp_path: Path, clock: ManualClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[MakeGuard]:
    """Guards whose page lies in a temporary directory, and which do not end this test process."""
    monkeypatch.setattr("healthd.trainer.process_exit.ExitGuard.leave_within", lambda *_: None)
    tmp_path.chmod(0o700)
    beacons = []

    def build(
        rank: int = 0,
        world: int = 1,
        node: str = "n1",
        store: Store | None = None,
        framework: Framework | None = None,
        device: Device | None = None,
    ) -> Guard:
        place = RankPlacement("j", 1, rank, world, 0, node)
        beacons.append(Beacon.create(str(tmp_path), place, clock))
        return Guard(
            place,
            beacons[-1],
            store,
            framework=framework or NoFramework(),
            device=device,
            clock=clock,
            termination_seconds=0.0,
        )

    yield build
    for beacon in beacons:
        beacon.close()


def path_of(tmp_path: Path, rank: int = 0) -> str:
    return str(tmp_path / f"j.1.{rank}.beacon")


def answer_of(tmp_path: Path, rank: int = 0) -> Acknowledgement:
    answer = read_page(path_of(tmp_path, rank)).acknowledgement
    assert answer is not None
    return answer


def train(guard: Guard, steps: int, save: Callable[[int], str] = "/ckpt/{}".format) -> list[int]:
    saved = []
    with guard:
        for step in range(steps):
            with guard.step(step) as s:
                if s.checkpoint_due:
                    s.saved(save(step))
                    saved.append(step)
    return saved


def test_a_loop_tells_its_sections_and_numbers(make: MakeGuard, tmp_path: Path, clock: ManualClock) -> None:
    guard = make()
    with guard:
        with guard.step(0) as s:
            with s.section("forward"):
                clock.advance(0.5)
            s.report(loss=2.0, grad_norm=1.0, tokens=512)
        with guard.step(1):
            clock.advance(0.25)
        with pytest.raises(KeyError), guard.step(2) as s, s.section("backward"):
            raise KeyError("user's own")
        with guard.step(3) as s, s.section("no such section"):
            pass

    first, second, *_ = read_page(path_of(tmp_path)).steps()
    assert first[2:7] == (0.5, {"forward": 0.5}, 2.0, 1.0, 512)
    assert second[2:7] == (0.25, {}, None, None, None)


def test_a_gpu_is_named_and_times_once_the_first_step_begins(
    make: MakeGuard, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(NoGpu):
        def gpu(self) -> RankGpu:
            raise RuntimeError("CUDA error: no device")

    with make(device=NoGpu()).step(0) as s, s.section("forward"):
        pass
    view = read_page(path_of(tmp_path))
    assert (view.identity.gpu_uuid, view.identity.gpu_pci, view.identity.gpu_index) == ("GPU-1", "0000:3b:00.0", 1)
    assert view.steps()[0].awaited is True

    with make(1, 2, device=Broken()).step(0):
        pass
    assert read_page(path_of(tmp_path, 1)).state.completed == 1
    assert "the GPU's name cannot be read: CUDA error: no device; training continues" in caplog.text


def test_undisturbed_training_ends_well(make: MakeGuard, tmp_path: Path) -> None:
    framework = Recorder()
    assert train(make(framework=framework), 5) == []

    view = read_page(path_of(tmp_path))
    assert (view.state.phase, view.state.completed) == (Phase.DONE, 5)
    assert framework.calls == []


def test_an_order_makes_the_rank_save_and_leave(make: MakeGuard, tmp_path: Path) -> None:
    framework = Recorder()
    guard = make(framework=framework)
    post_order(path_of(tmp_path), ORDER)

    with pytest.raises(Leave) as left:
        train(guard, 10)

    assert left.value.code == ExitCode.CONDEMNED
    answer = answer_of(tmp_path)
    assert (answer.outcome, answer.agreed_step, answer.checkpoint) == (OrderOutcome.LEFT, 1, "/ckpt/1")
    assert answer.seen_at == answer.agreed_at == answer.saved_at == answer.left_at > 0
    assert framework.calls == ["synchronize", "synchronize", "teardown"]
    assert read_page(path_of(tmp_path)).state.phase is Phase.LEAVING


def test_two_ranks_agree_and_only_the_condemned_nodes_says_so(make: MakeGuard, tmp_path: Path) -> None:
    store = LocalStore()
    guards = [make(rank, 2, f"n{rank + 1}", store) for rank in range(2)]
    codes: dict[int, object] = {}
    ejected: dict[int, bool] = {}
    post_order(path_of(tmp_path, 0), ORDER)

    for step in range(10):
        if step == 4:
            post_order(path_of(tmp_path, 1), ORDER)
        for rank, guard in enumerate(guards):
            try:
                with guard.step(step) as s:
                    assert s.checkpoint_due or not s.eject
                    if s.checkpoint_due:
                        ejected[rank] = s.eject
                        s.saved("/ckpt")
            except Leave as leave:
                codes[rank] = leave.code
        if codes:
            break

    assert step == 5
    assert codes == {0: ExitCode.CONDEMNED, 1: ExitCode.RELAUNCH}
    assert ejected == {0: True, 1: False}
    assert [answer_of(tmp_path, rank).agreed_step for rank in range(2)] == [5, 5]


@pytest.mark.parametrize(
    ("save", "detail"),
    [
        (lambda step: f"{1 / (step - step)}", "ZeroDivisionError: division by zero"),
        (None, "without s.saved(path)"),
    ],
    ids=["the save fails", "the loop forgets to save"],
)
def test_a_save_that_does_not_happen_is_an_abort_and_says_why(
    make: MakeGuard, tmp_path: Path, save: Callable[[int], str] | None, detail: str
) -> None:
    framework = Recorder()
    guard = make(framework=framework)
    post_order(path_of(tmp_path), ORDER)

    def loop() -> None:
        with guard:
            for step in range(10):
                with guard.step(step) as s:
                    if s.checkpoint_due and save is not None:
                        s.saved(save(step))

    with pytest.raises(Leave) as left:
        loop()

    assert (left.value.code, left.value.condemned) == (ExitCode.ABORTED, True)
    assert answer_of(tmp_path).outcome is OrderOutcome.FAILED
    assert detail in answer_of(tmp_path).detail
    assert framework.calls[-1] == "abort"


STOP = ORDER._replace(kind="checkpoint_then_stop", condemned=())
REVERT = ORDER._replace(kind="revert", condemned=(), before_step=7)


def test_an_order_to_stop_saves_and_is_never_relaunched(make: MakeGuard, tmp_path: Path) -> None:
    framework = Recorder()
    guard = make(framework=framework)
    post_order(path_of(tmp_path), STOP)

    with pytest.raises(Leave) as left:
        train(guard, 10)

    assert (left.value.code, left.value.condemned) == (ExitCode.NEVER_AGAIN, False)
    answer = answer_of(tmp_path)
    assert (answer.outcome, answer.checkpoint, answer.exit_code) == (OrderOutcome.LEFT, "/ckpt/1", 93)
    assert framework.calls[-1] == "teardown"


def test_an_order_to_go_back_leaves_at_one_step_and_saves_nothing(make: MakeGuard, tmp_path: Path) -> None:
    store, framework = LocalStore(), Recorder()
    guards = [make(rank, 2, f"n{rank + 1}", store, framework) for rank in range(2)]
    told: list[tuple[int, int]] = []
    left: dict[int, tuple[int, object]] = {}
    for rank, guard in enumerate(guards):
        guard.on_revert(lambda step, rank=rank: told.append((rank, step)))  # type: ignore[misc]  # bound here
        guard.__enter__()
    post_order(path_of(tmp_path, 0), REVERT)
    for step in range(10):
        if step == 4:
            post_order(path_of(tmp_path, 1), REVERT)
        for rank, guard in enumerate(guards):
            try:
                with guard.step(step) as s:
                    assert not s.checkpoint_due
            except Leave as leave:
                guard.__exit__(Leave, leave, None)
                left[rank] = step, leave.code
        if left:
            break

    assert left == {0: (5, ExitCode.RELAUNCH), 1: (5, ExitCode.RELAUNCH)}
    assert told == [(0, 7), (1, 7)]
    assert {answer_of(tmp_path, rank).outcome for rank in range(2)} == {OrderOutcome.LEFT}
    assert (framework.calls.count("teardown"), framework.calls.count("abort")) == (2, 0)


def test_who_cannot_go_back_has_no_vote_and_trains_on(make: MakeGuard, tmp_path: Path) -> None:
    guard = make()
    post_order(path_of(tmp_path), REVERT)

    assert train(guard, 5) == []

    answer = answer_of(tmp_path)
    assert answer.outcome is OrderOutcome.FAILED
    assert "guard.on_revert" in answer.detail


def test_a_job_that_fails_to_go_back_is_not_started_again(make: MakeGuard, tmp_path: Path) -> None:
    def no_room(step: int) -> None:
        raise OSError(28, f"No space left on device, before step {step}")

    guard = make()
    guard.on_revert(no_room)
    post_order(path_of(tmp_path), REVERT)

    with pytest.raises(Leave) as left:
        train(guard, 10)

    assert left.value.code == ExitCode.NEVER_AGAIN
    answer = answer_of(tmp_path)
    assert (answer.outcome, answer.exit_code) == (OrderOutcome.FAILED, 93)
    assert "No space left on device, before step 7" in answer.detail


def test_an_order_of_tomorrow_is_answered_and_training_goes_on(make: MakeGuard, tmp_path: Path) -> None:
    guard = make()
    post_order(path_of(tmp_path), ORDER._replace(kind="levitate"))

    assert train(guard, 5) == []

    assert (answer_of(tmp_path).outcome, answer_of(tmp_path).detail) == (
        OrderOutcome.FAILED,
        "this rank does not know the order 'levitate'",
    )


def test_an_expired_and_a_cancelled_order_are_answered_and_training_goes_on(
    make: MakeGuard, tmp_path: Path, clock: ManualClock
) -> None:
    guard = make(0, 2, store=LocalStore())
    post_order(path_of(tmp_path), ORDER._replace(expires_at=clock.wall() + 5))
    with guard.step(0):
        assert answer_of(tmp_path).outcome is OrderOutcome.SEEN
    clock.advance(6)
    with guard.step(1):
        assert answer_of(tmp_path).outcome is OrderOutcome.EXPIRED

    post_order(path_of(tmp_path), ORDER._replace(id="o2"))
    with guard.step(2):
        pass
    post_order(path_of(tmp_path), ORDER._replace(id="o2", cancelled=True))
    with guard.step(3):
        answer = answer_of(tmp_path)
    assert (answer.order, answer.outcome) == ("o2", OrderOutcome.CANCELLED)


@pytest.mark.parametrize("store", [GoneStore(), None], ids=["store gone", "no store"])
def test_without_a_store_there_is_a_clear_answer_and_training_goes_on(
    make: MakeGuard, tmp_path: Path, store: Store | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("healthd.trainer.agreement.PROBE_SECONDS", 0.1)
    guard = make(0, 2, store=store)
    post_order(path_of(tmp_path), ORDER)

    assert train(guard, 5) == []

    answer = answer_of(tmp_path)
    assert answer.outcome is OrderOutcome.FAILED
    assert "store" in answer.detail


def test_an_error_of_the_loop_passes_through(make: MakeGuard, tmp_path: Path) -> None:
    def loop(guard: Guard) -> None:
        with guard, guard.step(0):
            raise KeyError("user's own")

    with pytest.raises(KeyError, match="user's own"):
        loop(make())

    assert read_page(path_of(tmp_path)).state.completed == 0


def test_an_expired_or_cancelled_abort_is_left_alone(make: MakeGuard, tmp_path: Path, clock: ManualClock) -> None:
    guard = make()
    abort = MailboxOrder("a1", "abort", "GPU lost", ("n2",), clock.wall() - 1)
    post_order(path_of(tmp_path), abort)
    with guard.step(0):
        pass
    post_order(path_of(tmp_path), abort._replace(expires_at=clock.wall() + 9, cancelled=True))

    assert train(guard, 3) == []


def test_no_beacon_no_difference() -> None:
    place = RankPlacement("j", 1, 0, 2, 0, "n1")
    guard = Guard(place, NullBeacon(), LocalStore(), framework=NoFramework(), termination_seconds=0.0)

    assert train(guard, 3) == []
