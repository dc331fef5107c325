from __future__ import annotations

from remediator.engine.duty_cycle import DutyCycle


class Worker:
    """A thread whose pieces of work each take a millisecond of processor."""

    def __init__(self) -> None:
        self.worked_s = 0.0
        self.rests: list[tuple[float, float]] = []  # at which processor time, how long

    def works(self) -> None:
        self.worked_s += 0.001

    def cycle(self, work_s: float) -> DutyCycle:
        return DutyCycle(work_s, 0.5, lambda: self.worked_s, lambda rest_s: self.rests.append((self.worked_s, rest_s)))


def test_a_rest_follows_each_stretch_of_work() -> None:
    worker = Worker()
    cycle = worker.cycle(0.0025)
    seen = []
    for item in cycle.over(range(7)):
        worker.works()
        seen.append(item)
    assert seen == list(range(7))
    assert worker.rests == [(0.003, 0.5), (0.006, 0.5)]


def test_what_takes_no_time_needs_no_rest() -> None:
    worker = Worker()
    assert list(worker.cycle(0.001).over(range(1000))) == list(range(1000))
    assert worker.rests == []


def test_what_was_done_before_counts_for_nothing() -> None:
    worker = Worker()
    cycle = worker.cycle(0.002)
    for _ in range(100):
        worker.works()
    cycle.begin()
    worker.works()
    cycle.step()
    assert worker.rests == []


def test_small_pieces_of_work_are_counted_together() -> None:
    worker = Worker()
    for _ in worker.cycle(0.002).over(range(9), together=4):
        worker.works()
    assert [at for at, _ in worker.rests] == [0.004, 0.008]
