"""Who may wait before the door, and who leaves when there is no room."""

from __future__ import annotations

from remediator.serving.guests import STAY_S, Guest, Guests


class Crowd:
    def __init__(self, each: int, total: int) -> None:
        self.now = 0.0
        self.left: list[str] = []
        self.guests = Guests(each, total, lambda: self.now)

    def enter(self, address: str, name: str) -> Guest | None:
        guest = self.guests.enter(address)
        if guest is not None:
            guest.leave = lambda: self.left.append(name)
        return guest


def test_who_comes_too_late_is_not_let_in_and_nobody_is_cut_off_half_way() -> None:
    crowd = Crowd(each=2, total=3)
    assert crowd.enter("a", "a1")
    assert crowd.enter("a", "a2")
    assert crowd.enter("a", "a3") is None
    assert crowd.enter("b", "b1")
    assert crowd.enter("c", "c1") is None
    assert crowd.left == []


def test_whoever_had_time_enough_makes_room_the_oldest_first() -> None:
    crowd = Crowd(each=2, total=3)
    for address, name in (("a", "a1"), ("b", "b1"), ("b", "b2")):
        assert crowd.enter(address, name)
    crowd.now = STAY_S
    assert crowd.enter("b", "b3")
    assert crowd.left == ["b1"]
    assert crowd.enter("c", "c1")
    assert crowd.left == ["b1", "a1"]
    assert len(crowd.guests) == 3


def test_who_is_known_or_gone_takes_no_room_and_may_be_forgotten_twice() -> None:
    crowd = Crowd(each=1, total=1)
    for _ in range(3):
        guest = crowd.enter("a", "a")
        assert guest is not None
        crowd.guests.forget(guest)
        crowd.guests.forget(guest)
        assert len(crowd.guests) == 0
