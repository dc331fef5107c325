"""`GroupMembership`: whatever comes, goes and is condemned, in any order, each rank has one living member or there is no generation."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from healthd.launcher.process_groups.group_membership import (
    Generation,
    GroupMembership,
    Member,
    NoSpareError,
    RankReplacement,
)


def of(world: int, spares: int, per_node: int = 1) -> GroupMembership:
    return GroupMembership([Member(each, f"n{each // per_node}") for each in range(world + spares)], world)


def test_the_first_generation_waits_for_all_its_members_and_for_no_spare() -> None:
    membership = of(world=2, spares=1)
    membership.arrive(1)
    assert membership.next_generation() is None
    membership.arrive(0)
    assert membership.next_generation() == (Generation(0, (Member(0, "n0"), Member(1, "n1"))), [])
    assert membership.next_generation() is None


def test_a_lost_rank_waits_for_a_spare_that_has_not_come_yet() -> None:
    membership = of(world=2, spares=1)
    membership.arrive(0)
    membership.arrive(1)
    membership.next_generation()
    assert membership.leave(1)
    assert not membership.leave(1), "it is known by now"
    assert membership.next_generation() is None
    membership.arrive(2)
    expected = [RankReplacement(1, Member(1, "n1"), Member(2, "n2"))]
    assert membership.next_generation() == (Generation(1, (Member(0, "n0"), Member(2, "n2"))), expected)
    assert membership.rank_of(1) is None
    assert membership.rank_of(2) == 1


def test_a_condemned_node_loses_all_its_ranks_and_spares_at_once() -> None:
    membership = of(world=4, spares=2, per_node=2)
    for number in range(6):
        membership.arrive(number)
    membership.next_generation()
    assert [each.number for each in membership.condemn(["n1", "n1"])] == [2, 3]
    formed = membership.next_generation()
    assert formed is not None
    assert [each.number for each in formed[0].members] == [0, 1, 4, 5]
    membership.condemn(["n2"])
    with pytest.raises(NoSpareError, match="0 spare processes are available for rank 2, 3"):
        membership.next_generation()


def test_a_member_that_is_gone_does_not_come_back() -> None:
    membership = of(world=1, spares=1)
    membership.leave(0)
    membership.arrive(0)
    assert membership.is_gone(0)
    assert membership.next_generation() is None


class AnyOrder(RuleBasedStateMachine):
    """Beside `GroupMembership`, in the words of its promise: who holds which rank, who has come, who is unusable."""

    @initialize(world=st.integers(1, 4), spares=st.integers(0, 4), per_node=st.integers(1, 2))
    def begin(self, world: int, spares: int, per_node: int) -> None:
        self.members = [Member(each, f"n{each // per_node}") for each in range(world + spares)]
        self.membership = GroupMembership(self.members, world)
        self.holders, self.spares = self.members[:world], self.members[world:]
        self.came: set[int] = set()
        self.gone: set[int] = set()
        self.condemned: set[str] = set()
        self.number = -1

    def usable(self, member: Member) -> bool:
        return member.number not in self.gone and member.node not in self.condemned

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        self.membership.arrive(member.number)
        self.came.add(member.number)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        member = data.draw(st.sampled_from(self.members))
        assert self.membership.leave(member.number) == (member.number not in self.gone)
        self.gone.add(member.number)

    @rule(data=st.data())
    def condemn(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.members)).node
        living = {each.number for each in self.membership.condemn([node])}
        self.condemned.add(node)
        in_use = {each.number for each in (*self.holders, *self.spares) if each.node in self.condemned}
        assert living == in_use - self.gone

    @rule()
    def form(self) -> None:
        vacant = {rank for rank, holder in enumerate(self.holders) if not self.usable(holder)}
        left = [each for each in self.spares if self.usable(each)]
        try:
            formed = self.membership.next_generation()
        except NoSpareError:
            assert len(left) < len(vacant)
            return
        assert len(left) >= len(vacant)
        settled = {holder.number for rank, holder in enumerate(self.holders) if rank not in vacant}
        ready = [each for each in left if each.number in self.came]
        needed = self.number < 0 or bool(vacant)
        if formed is None:
            assert not needed or len(ready) < len(vacant) or settled - self.came
            return
        assert needed
        self.check(*formed, vacant)

    def check(self, generation: Generation, replaced: list[RankReplacement], vacant: set[int]) -> None:
        members = generation.members
        assert generation.number == self.number + 1
        assert len(members) == len(self.holders) == len({each.number for each in members})
        assert all(self.usable(each) and each.number in self.came for each in members)
        changed = {rank for rank, each in enumerate(members) if each != self.holders[rank]}
        assert changed == vacant == {each.rank for each in replaced}
        for rank, before, after in replaced:
            assert (before, after) == (self.holders[rank], members[rank])
            assert after in self.spares
        self.number, self.holders = generation.number, list(members)
        self.spares = [each for each in self.spares if each not in members]

    @invariant()
    def ranks_are_known(self) -> None:
        if hasattr(self, "members"):
            ranks = {holder.number: rank for rank, holder in enumerate(self.holders)}
            assert all(self.membership.rank_of(each.number) == ranks.get(each.number) for each in self.members)
            assert list(self.membership.spares) == [each for each in self.spares if self.usable(each)]


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase


def test_a_node_that_was_condemned_and_repaired_is_used_by_its_new_processes_alone() -> None:
    membership = GroupMembership([Member(0, "n0"), Member(1, "n1")], 2)
    for number in (0, 1):
        membership.arrive(number)
    assert membership.next_generation() is not None
    membership.condemn(["n1"])
    membership.admit([Member(2, "n1")])
    assert membership.condemned == frozenset()
    assert membership.is_gone(1)
    membership.arrive(2)
    formed = membership.next_generation()
    assert formed is not None
    assert formed[0].members == (Member(0, "n0"), Member(2, "n1"))
