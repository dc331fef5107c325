"""`ElasticMembership`: a loss without a spare makes the job smaller, never below its least size; who waits makes it larger."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from healthd.launcher.process_groups.elastic_membership import ElasticMembership, SizeLimits, assign_ranks
from healthd.launcher.process_groups.group_membership import Member, NoSpareError


def of(nodes: int, *, spares: int = 0, per_node: int = 1, least: int = 1, steps: bool = True) -> ElasticMembership:
    """A job in its first generation, of which a step is done."""
    members = [Member(each, f"n{each // per_node}") for each in range((nodes + spares) * per_node)]
    membership = ElasticMembership(members, nodes * per_node, SizeLimits(least, nodes, per_node))
    for member in members:
        membership.arrive(member.number)
    membership.next_generation()
    if steps:
        membership.note_fixed("")
    return membership


def formed(membership: ElasticMembership, *, resume: bool = False) -> list[int]:
    generation = membership.next_generation(resume=resume)
    assert generation is not None
    return [each.number for each in generation[0].members]


def test_without_a_spare_the_survivors_go_on_in_their_order() -> None:
    membership = of(3)
    membership.leave(1)
    assert formed(membership) == [0, 2]
    assert membership.rank_of(2) == 1
    assert membership.rank_of(1) is None
    assert membership.next_generation() is None


def test_a_spare_that_has_come_is_used_first() -> None:
    membership = of(3, spares=1)
    membership.leave(1)
    assert formed(membership) == [0, 3, 2]
    membership.leave(0)
    assert formed(membership) == [3, 2]


def test_a_spare_that_has_not_come_yet_is_not_waited_for() -> None:
    membership = of(2)
    membership.admit([Member(2, "n1")])
    membership.leave(1)
    assert formed(membership) == [0]
    assert not membership.can_grow
    membership.arrive(2)
    assert membership.can_grow


def test_the_job_does_not_grow_before_its_ranks_have_paused_nor_above_its_size() -> None:
    membership = of(2)
    membership.leave(1)
    formed(membership)
    membership.admit([Member(2, "n1"), Member(3, "n2")])
    membership.arrive(2)
    membership.arrive(3)
    assert membership.next_generation() is None
    assert formed(membership, resume=True) == [0, 2]
    assert not membership.can_grow
    assert [each.number for each in membership.spares] == [3]


def test_ranks_that_paused_for_a_member_that_has_died_go_on_as_they_were() -> None:
    membership = of(2)
    membership.leave(1)
    formed(membership)
    membership.admit([Member(2, "n1")])
    membership.arrive(2)
    membership.leave(2)
    assert formed(membership, resume=True) == [0]


def test_it_never_has_fewer_nodes_than_the_least_and_says_so() -> None:
    membership = of(3, least=2)
    assert membership.shrinks
    membership.leave(0)
    assert formed(membership) == [1, 2]
    assert not membership.shrinks
    membership.leave(1)
    with pytest.raises(NoSpareError, match="cannot go on with fewer ranks: at least 2 nodes required, 1 remain"):
        membership.next_generation()


@pytest.mark.parametrize("fixed", ["", "its state is sharded"])
def test_a_job_of_which_nothing_is_known_or_whose_state_is_sharded_does_not_shrink(fixed: str) -> None:
    membership = of(2, steps=False)
    if fixed:
        membership.note_fixed(fixed)
    assert not membership.shrinks
    membership.leave(1)
    with pytest.raises(NoSpareError, match=fixed or "no step is done yet"):
        membership.next_generation()


def test_a_sharded_job_waits_for_a_spare_that_starts_and_does_not_grow() -> None:
    membership = of(2)
    membership.note_fixed("its state is sharded")
    membership.admit([Member(2, "n2")])
    membership.leave(1)
    assert membership.next_generation() is None
    membership.arrive(2)
    assert formed(membership) == [0, 2]
    assert formed(membership, resume=True) == [0, 2]


def test_a_job_that_has_become_sharded_keeps_its_size() -> None:
    membership = of(2)
    membership.leave(1)
    formed(membership)
    membership.note_fixed("its state is sharded")
    membership.admit([Member(2, "n1")])
    membership.arrive(2)
    assert not membership.can_grow
    assert formed(membership, resume=True) == [0]


def test_the_living_ranks_of_a_node_that_lost_one_wait_for_its_return() -> None:
    membership = of(3, per_node=2)
    membership.leave(2)
    assert formed(membership) == [0, 1, 4, 5]
    assert [each.number for each in membership.spares] == [3]
    membership.admit([Member(6, "n1")])
    membership.arrive(6)
    assert formed(membership, resume=True) == [0, 1, 4, 5, 3, 6]


def test_members_of_a_node_are_neighbours_and_whole_nodes_come_first() -> None:
    members = [Member(0, "a"), Member(1, "b"), Member(2, "c"), Member(3, "b"), Member(4, "c")]
    assert [each.number for each in assign_ranks(members, 2, 4)] == [1, 3, 2, 4]
    assert [each.number for each in assign_ranks(members, 2, 2)] == [1, 3]


class AnyOrder(RuleBasedStateMachine):
    """Arrivals, losses, condemnations and pauses in any order: what holds of every generation that follows."""

    @initialize(nodes=st.integers(1, 4), spares=st.integers(0, 2), per_node=st.integers(1, 3), data=st.data())
    def begin(self, nodes: int, spares: int, per_node: int, data: st.DataObject) -> None:
        self.sizes = SizeLimits(data.draw(st.integers(1, nodes)), nodes, per_node)
        self.members = [Member(each, f"n{each // per_node}") for each in range((nodes + spares) * per_node)]
        self.membership = ElasticMembership(self.members, nodes * per_node, self.sizes)
        self.came: set[int] = set()
        self.gone: set[int] = set()
        self.condemned: set[str] = set()
        self.fixed, self.number = True, -1

    def usable(self, member: Member) -> bool:
        return member.number not in self.gone and member.node not in self.condemned

    @rule(data=st.data())
    def arrive(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.members)).number
        self.membership.arrive(number)
        if number not in self.gone:
            self.came.add(number)

    @rule(data=st.data())
    def leave(self, data: st.DataObject) -> None:
        number = data.draw(st.sampled_from(self.members)).number
        self.membership.leave(number)
        self.gone.add(number)

    @rule(data=st.data())
    def condemn(self, data: st.DataObject) -> None:
        node = data.draw(st.sampled_from(self.members)).node
        self.membership.condemn([node])
        self.condemned.add(node)

    @rule(data=st.data())
    def start_again(self, data: st.DataObject) -> None:
        if self.gone and len(self.members) < 30:
            place = data.draw(st.sampled_from([each for each in self.members if each.number in self.gone]))
            if place.node in self.condemned:  # it was repaired: what ran there before counts no more
                self.gone |= {each.number for each in self.members if each.node == place.node}
                self.condemned.remove(place.node)
            self.members.append(Member(len(self.members), place.node))
            self.membership.admit([self.members[-1]])

    @rule(fixed=st.booleans())
    def train(self, fixed: bool) -> None:  # noqa: FBT001 - hypothesis fills it
        if self.number >= 0:
            self.fixed = fixed
            self.membership.note_fixed("sharded" if fixed else "")

    @rule(resume=st.booleans())
    def form(self, resume: bool) -> None:  # noqa: FBT001 - hypothesis fills it
        before = self.membership.holders
        grows = self.membership.can_grow
        ready = [each for each in self.members if self.usable(each) and each.number in self.came]
        try:
            result = self.membership.next_generation(resume=resume)
        except NoSpareError:
            kept = sum(self.usable(each) for each in before)
            assert self.fixed or self.number < 0 or len(ready) // self.sizes.per_node < self.sizes.least
            assert kept < len(before)
            return
        if result is None:
            return
        members = result[0].members
        self.number += 1
        assert result[0].number == self.number
        assert len(set(members)) == len(members)
        assert set(members) <= set(ready)
        if self.fixed:
            assert len(members) == len(before)
        assert len(members) % self.sizes.per_node == 0
        assert self.sizes.least <= len(members) // self.sizes.per_node <= self.sizes.most
        assert not (grows and resume) or len(members) > len(before)

    @invariant()
    def nobody_is_forgotten(self) -> None:
        if hasattr(self, "membership"):
            known = {*self.membership.holders, *self.membership.spares}
            assert {each for each in self.members if self.usable(each)} <= known


AnyOrder.TestCase.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
TestAnyOrder = AnyOrder.TestCase
