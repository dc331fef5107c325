"""Who may wait before the door, and who leaves when there is no room."""

from __future__ import annotations

from remediator.serving.connection_limits import STAY_S, AuthenticatedConnections, UnknownConnection, UnknownConnections


class Crowd:
    def __init__(self, each: int, total: int) -> None:
        self.now = 0.0
        self.left: list[str] = []
        self.guests = UnknownConnections(each, total, lambda: self.now)

    def enter(self, address: str, name: str) -> UnknownConnection | None:
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


class Connection:
    def __init__(self, *, idle: bool = True) -> None:
        self.idle = idle
        self.left = False

    def leave(self) -> None:
        self.left = True


def test_of_one_token_the_connection_unused_for_longest_makes_room_and_no_other_tokens() -> None:
    members, other = AuthenticatedConnections(), Connection()
    mine = [Connection() for _ in range(4)]
    assert members.enter(other, "n2", 1)
    for connection in (*mine[:3], mine[0]):
        assert members.enter(connection, "n1", 3)
    assert members.enter(mine[3], "n1", 3)
    assert [connection.left for connection in mine] == [False, True, False, False]
    assert not other.left
    assert len(members) == 4


def test_who_is_busy_is_not_sent_away_for_another() -> None:
    members = AuthenticatedConnections()
    busy, idle, late = Connection(idle=False), Connection(), Connection()
    assert members.enter(busy, "n1", 2)
    assert members.enter(idle, "n1", 2)
    assert members.enter(late, "n1", 2)
    assert (busy.left, idle.left) == (False, True)
    late.idle = False
    assert not members.enter(Connection(), "n1", 2)
    assert members.enter(busy, "n1", 2), "those that are in may go on asking"


def test_a_connection_counts_for_whoever_it_speaks_for_last() -> None:
    members, connection = AuthenticatedConnections(), Connection(idle=False)
    assert members.enter(connection, "n1", 1)
    assert members.enter(connection, "n2", 1)
    assert members.enter(Connection(idle=False), "n1", 1)
    assert not members.enter(connection, "n1", 1)
    assert len(members) == 2
    members.forget(connection)
    members.forget(connection)
    assert len(members) == 1
    assert members.enter(Connection(), "n2", 1)
