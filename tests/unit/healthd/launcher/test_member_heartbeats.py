from __future__ import annotations

from collections.abc import Set as AbstractSet

from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.process_groups.member_heartbeats import PING_SECONDS, MemberHeartbeats

LIMIT_S = 15.0


class Job:
    """Four members that have trained; each second they are pinged, and those that are not frozen answer."""

    def __init__(self, frozen_seconds: float = LIMIT_S, members: int = 4) -> None:
        self.heartbeats = MemberHeartbeats(frozen_seconds, members)
        self.now, self.steps = 100.0, 0
        self.members = range(members)
        self.heartbeats.note_trained(self.members, self.now)

    def run(self, seconds: float, *, frozen: AbstractSet[int] = frozenset(), trains: bool) -> list[int]:
        for _ in range(int(seconds)):
            self.now += 1
            self.steps += trains
            if self.heartbeats.is_ping_due(self.now):
                for member in self.members:
                    if member not in frozen:
                        self.heartbeats.note_answer(member, self.steps, self.now)
            if found := self.heartbeats.find_frozen(self.now):
                return found
        return []


def test_a_silent_member_is_frozen_once_the_job_has_stood_still_for_long_enough() -> None:
    job = Job()
    assert job.run(30, trains=True) == []
    began = job.now
    assert job.run(60, frozen={2}, trains=False) == [2]
    assert LIMIT_S <= job.now - began <= LIMIT_S + 2 * PING_SECONDS
    job.heartbeats.forget(2)
    assert job.run(60, frozen={2}, trains=False) == []


def test_a_member_that_holds_the_interpreter_for_long_is_left_alone_while_steps_begin() -> None:
    job = Job()
    job.run(10, trains=True)
    assert job.run(300, frozen={1}, trains=True) == []


def test_nobody_is_frozen_in_a_job_that_stands_still_and_answers() -> None:
    job = Job()
    job.run(10, trains=True)
    assert job.run(3600, trains=False) == []


def test_where_nobody_answers_the_launcher_itself_is_cut_off() -> None:
    job = Job()
    job.run(10, trains=True)
    assert job.run(600, frozen={0, 1, 2, 3}, trains=False) == []


def test_a_launcher_that_was_stopped_does_not_count_that_time() -> None:
    job = Job()
    job.run(10, trains=True)
    job.now += 600
    assert job.run(LIMIT_S - PING_SECONDS, frozen={3}, trains=False) == []
    assert job.run(10, frozen={3}, trains=False) == [3]


def test_a_member_that_has_not_trained_yet_may_compile_for_as_long_as_it_likes() -> None:
    heartbeats = MemberHeartbeats(LIMIT_S, 2)
    heartbeats.note_trained([0], 0.0)
    for second in range(1, 300):
        if heartbeats.is_ping_due(second):
            heartbeats.note_answer(0, 7, second)
            if second < 10:
                heartbeats.note_answer(1, 0, second)
        assert heartbeats.find_frozen(second) == []


def test_zero_seconds_is_never() -> None:
    job = Job(frozen_seconds=0.0)
    assert job.run(600, frozen={1}, trains=False) == []
    assert not job.heartbeats.is_ping_due(job.now + 100)


@given(st.integers(2, 200_000), st.floats(0.1, 600))
def test_the_launcher_sends_a_bounded_number_of_pings_and_waits_for_several(members: int, limit_s: float) -> None:
    heartbeats = MemberHeartbeats(limit_s, members)
    rounds = [second / 2 for second in range(2, 402) if heartbeats.is_ping_due(second / 2)]
    assert len(rounds) * members <= 200 * 500 + members
    heartbeats.note_trained([0, 1], 201.0)
    heartbeats.note_answer(0, 1, 201.0)
    heartbeats.note_answer(1, 1, 201.0)
    every = max(PING_SECONDS, members / 500)
    now = 201.0 + 2.9 * every
    heartbeats.note_answer(0, 1, now)
    assert heartbeats.find_frozen(now) == []
