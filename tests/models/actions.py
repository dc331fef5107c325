"""From a fault to a node that is back, every order of events: a leader, its successor, a scheduler, nodes, a person.

Everything that is decided is decided by the pipeline (`centre`); the scheduler answers by the rules of `remediator.schedulers.scheduler_protocol`,
orders are handed out by `Snapshot.orders_for`, commits are let through by the store's fence. What is the model's own: the words between
them, the nodes' side, when the performer begins what (`ActionExecutor.start_due_actions`), and that a term begins no effect after one of a later
term has begun, which `leading` proves of the lease.
"""

from __future__ import annotations

from collections.abc import Iterator

from remediator.decisions.mode_stop import is_action_withheld
from remediator.engine.decision_engine import StateSnapshot
from remediator.model.journal_records import Action
from remediator.model.pipeline_inputs import (
    ActionEnded,
    AnyInput,
    FindingsReported,
    HoldsObserved,
    OrderAnswered,
    PolicyChanged,
    Tick,
)
from remediator.model.plan_steps import Mode
from remediator.model.rule_conditions import NodeState
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.scheduler_protocol import check_cordon, check_resume
from tests.models.cluster_world import (
    A_WHILE_S,
    CORDON,
    Bounds,
    Call,
    Replica,
    World,
    answered,
    hold_of,
    intent,
    opposite,
    short,
    with_replica,
    without,
)
from tests.models.controller_model import START, Centre, Rows, fault_of
from tests.models.exploration import Step
from tests.models.leadership import lets_write
from tests.models.operator_model import WORDS, at_rest, said, words_ahead
from vocabulary.order import Order, OrderState, OrderUpdate


class Cluster:
    """One cluster. Its methods are the rules; each broken one changes one of them."""

    name = "as it is"

    def __init__(self, bounds: Bounds) -> None:
        self.bounds = bounds
        self.nodes = tuple(f"n{n}" for n in range(1, bounds.nodes + 1))
        self.centre = Centre()

    def initial(self) -> World:
        first = self.centre.first(self.nodes)
        idle = (Replica(),) * (self.bounds.replicas - 1)
        faulty = tuple(n < self.bounds.faulty for n in range(self.bounds.nodes))
        in_service = (HoldOwner.NOBODY.value,) * self.bounds.nodes
        return World((Replica(1, first), *idle), self.centre.rows_of(first), in_service, faulty)

    def canonical(self, world: World) -> World:
        return world._replace(replicas=tuple(sorted(world.replicas)), calls=tuple(sorted(world.calls)))

    def steps(self, world: World) -> Iterator[Step[World]]:
        own = [*self._leads(world)]
        for number, replica in enumerate(world.replicas):
            if replica.epoch:
                own += self._hears(world, number)
                own += self._performs(world, number)
        for call in dict.fromkeys(world.calls):
            own += self._scheduler_answers(world, call)
        yield from own
        yield from self._fails(world)
        if not (world.words and self.under_way(world)):
            for word in words_ahead(world.words, self.bounds.words):
                yield from self._person(world, word)
        resting = all(step.world for step in own)
        if resting and world.whiles < self.bounds.whiles and not self.ended(world):
            yield Step("a while passes", self._a_while(world))

    def _leads(self, world: World) -> Iterator[Step[World]]:
        """Whoever is idle takes the lead that nobody has, or that its owner lost without knowing."""
        idle = next((n for n, each in enumerate(world.replicas) if not each.epoch), None)
        if idle is None:
            return
        owner = any(each.epoch == world.epoch for each in world.replicas)
        if owner and world.losses >= self.bounds.losses:
            return
        epoch, item = world.epoch + 1, PolicyChanged(at=self.now(world), digest="", source="", mode=Mode.ACT)
        memory = self.centre.fold(self.loaded(world), item)
        leads = with_replica(world, idle, Replica(epoch, memory))._replace(
            epoch=epoch, rows=self.centre.rows_of(memory)
        )
        lost = ", whose leader lost it and does not know" if owner else ""
        yield Step(
            f"replica {idle} leads in epoch {epoch}{lost}", leads._replace(losses=world.losses + owner), world=owner
        )

    def loaded(self, world: World) -> int:
        return self.centre.loaded(world.rows)

    def _hears(self, world: World, number: int) -> Iterator[Step[World]]:
        """Everything that a replica may be told next; what changes nothing that it knows is left out."""
        replica, now = world.replicas[number], self.now(world)
        known = self.centre.known(replica.memory)
        if replica.epoch != world.epoch:
            yield Step(
                f"replica {number} hears that epoch {replica.epoch} is over", with_replica(world, number, Replica())
            )
        yield from self._decides(world, number, Tick(at=now), f"replica {number} looks at the clock")
        for at, node in enumerate(self.nodes):
            yield from self._decides(world, number, self._report(world, at, known, now), f"{node} reports")
        for action in known.actions.values():
            obeyed = action.id in map(intent, world.obeyed)
            if action.order is not None and obeyed and not action.state.final and not self.under_way(world):
                update = OrderUpdate(id=action.id, state=OrderState.SUCCEEDED, at=now)
                item = OrderAnswered(at=now, node=action.node, update=update)
                yield from self._decides(world, number, item, f"{action.node} answers {short(action.id)}")
        if replica.seen:
            at_s, owners = replica.seen
            item_seen = HoldsObserved(at=at_s, holds=tuple(map(hold_of, self.nodes, owners)))
            over = with_replica(world, number, replica._replace(seen=()))
            text = f"replica {number} takes in what the scheduler said"
            yield from self._decides(over, number, item_seen, text, always=True)
        else:
            item_seen = HoldsObserved(at=now + A_WHILE_S / 2, holds=tuple(map(hold_of, self.nodes, world.holds)))
            if self.centre.fold(replica.memory, item_seen) != replica.memory:
                shown = replica._replace(seen=(item_seen.at, world.holds))
                yield Step(
                    f"replica {number} asks the scheduler: {self._shown(world)}", with_replica(world, number, shown)
                )

    def _report(self, world: World, at: int, known: Rows, now: float) -> AnyInput:
        finding = fault_of(self.nodes[at])
        if world.faulty[at]:
            return FindingsReported(at=now, node=finding.node, boot_id="b", changes=(finding,), active=(finding,))
        before = known.findings.get(finding.id)
        cleared = (finding.cleared(now, "proof"),) if before is not None and before.active else ()
        return FindingsReported(at=now, node=finding.node, boot_id="b", changes=cleared, active=())

    def _decides(
        self, world: World, number: int, item: AnyInput, text: str, *, always: bool = False
    ) -> Iterator[Step[World]]:
        """One input: decided upon, written, published; or the term is over; or it dies between the last two."""
        replica = world.replicas[number]
        memory = self.centre.fold(replica.memory, item)
        if memory == replica.memory:
            if always:
                yield Step(text, world)
            return
        if not lets_write(world.epoch, replica.epoch):
            yield Step(f"{text}; replica {number} may not write it and ends", with_replica(world, number, Replica()))
            return
        written = self.written(world._replace(rows=self.centre.rows_of(memory)), item)
        yield Step(text, with_replica(written, number, replica._replace(memory=memory)))
        if world.crashes < self.bounds.crashes:
            died = with_replica(written, number, Replica())._replace(crashes=world.crashes + 1)
            yield Step(f"{text}; replica {number} is killed right after the commit", died, world=True)

    def written(self, world: World, item: AnyInput) -> World:
        """What else follows from a commit: time goes on with each answer of the scheduler."""
        return world._replace(whiles=world.whiles + 1) if isinstance(item, ActionEnded) else world

    def _performs(self, world: World, number: int) -> Iterator[Step[World]]:
        replica, now = world.replicas[number], self.now(world)
        known = self.centre.known(replica.memory)
        for call in world.calls:
            if call.epoch == replica.epoch and call.result:
                over = world._replace(calls=without(world.calls, call))
                item = ActionEnded(
                    at=now + A_WHILE_S, action=call.action, outcome=ActionOutcome(ActionResult(call.result), "asked")
                )
                text = f"replica {number} hears that {call.verb} of {call.node} ended: {call.result}"
                yield from self._decides(over, number, item, text, always=True)
        if not self.may_begin(world, replica):
            return
        late = self.bounds.prompt
        busy = {call.node for call in world.calls if call.epoch == replica.epoch or (late and not call.result)}
        for action in known.actions.values():
            waits = action.state.final or is_action_withheld(known.operator_overrides, action)
            if action.order is None and not waits and action.not_before <= now and action.node not in busy:
                call = Call(action.id, action.node, action.verb, replica.epoch)
                begun = world._replace(begun=replica.epoch, calls=(*world.calls, call))
                text = f"replica {number} begins {action.verb} of {action.node}"
                yield Step(text, begun, wrong=self._rules(world, replica, action))
        for node in self.nodes:
            for order in self.orders(known, node, now, replica):
                yield from self._obeys(world, number, order, known.actions[intent(order.id)])

    def under_way(self, world: World) -> bool:
        """Whether a call has not ended: it does before a test beside it ends, and before a person's next word."""
        return any(not call.result for call in world.calls)

    def orders(self, known: Rows, node: str, now: float, _replica: Replica) -> tuple[Order, ...]:
        """What the API hands out to a node."""
        ordered = [a for a in known.actions.values() if a.order is not None and a.node == node and not a.state.final]
        snapshot = StateSnapshot({}, {}, {}, {}, {}, {node: ordered}, operator_overrides=dict(known.operator_overrides))
        return snapshot.orders_for(node, now)

    def _obeys(self, world: World, number: int, order: Order, action: Action) -> Iterator[Step[World]]:
        """A node fetches an order, and does once what goes by that id. Here it is a test, which passes."""
        if order.id in world.obeyed:
            return
        at = self.nodes.index(order.node)
        done = world._replace(
            begun=world.replicas[number].epoch,
            obeyed=tuple(sorted((*world.obeyed, order.id))),
            faulty=(*world.faulty[:at], False, *world.faulty[at + 1 :]),
        )
        wrong = self._rules(world, world.replicas[number], action)
        twice = intent(order.id) in map(intent, world.obeyed)
        yield Step(
            f"{order.node} fetches {short(order.id)} from replica {number} and carries it out",
            done,
            wrong=wrong or ("one intent is carried out twice" if twice else ""),
        )

    def may_begin(self, world: World, replica: Replica) -> bool:
        """What the lease is for."""
        return replica.epoch >= world.begun

    def _rules(self, world: World, replica: Replica, action: Action) -> str:
        """What must hold whenever an effect begins."""
        rows = self.centre.rows(world.rows)
        if action.id not in rows.written or action.decision not in rows.written:
            return f"{action.verb} begins, and no row says that it was meant to"
        theirs = rows.nodes[action.node].state is NodeState.OPERATOR_HELD
        if theirs and action.verb != CORDON and replica.epoch == world.epoch:  # a cordon would be refused there
            return f"{action.verb} begins on {action.node}, which is a person's"
        late = replica.epoch < world.begun
        return f"an effect of epoch {replica.epoch} begins after one of {world.begun}" if late else ""

    def _scheduler_answers(self, world: World, call: Call) -> Iterator[Step[World]]:
        if call.result:
            return
        at = self.nodes.index(call.node)
        early = self.before(call.verb, hold_of(call.node, world.holds[at]))
        result = early.result.value if early is not None else ActionResult.DONE.value
        owner, wrong = world.holds[at], ""
        done = world
        if early is None:
            after = HoldOwner.US.value if call.verb == CORDON else HoldOwner.NOBODY.value
            calls = tuple(each._replace(overtaken=each.overtaken or self.overtakes(each, call)) for each in world.calls)
            done = world._replace(holds=(*world.holds[:at], after, *world.holds[at + 1 :]), calls=calls)
            wrong = "what a person holds is changed" if owner == HoldOwner.OPERATOR.value else ""
            wrong = wrong or (f"{call.verb} of {call.node} comes after what was begun later" if call.overtaken else "")
        heard = any(each.epoch == call.epoch for each in world.replicas)
        text = f"the scheduler is asked for {call.verb} of {call.node} (epoch {call.epoch}): {result}"
        yield Step(text, answered(done, call, result, heard=heard), wrong=wrong)
        if not heard:
            yield Step(
                f"{call.verb} of {call.node} (epoch {call.epoch}) never arrives",
                answered(world, call, "", heard=False),
            )
        elif world.failures < self.bounds.failures:
            failed = ActionResult.FAILED.value
            for so_far, how in ((done, "done, but no answer comes"), (world, "not done, and no answer comes")):
                lost = answered(so_far, call, failed, heard=True)._replace(failures=world.failures + 1)
                yield Step(
                    f"the scheduler is asked for {call.verb} of {call.node}: {how}", lost, world=True, wrong=wrong
                )

    def overtakes(self, earlier: Call, later: Call) -> bool:
        """Whether the earlier one must not be done any more when the later one is: it would undo it."""
        return opposite(earlier, later)

    def before(self, verb: str, hold: SchedulerNodeState) -> ActionOutcome | None:
        """What a scheduler's backend asks itself right before it changes a node."""
        return check_cordon(hold) if verb == CORDON else check_resume(hold)

    def _fails(self, world: World) -> Iterator[Step[World]]:
        for number, replica in enumerate(world.replicas):
            if replica.epoch and world.crashes < self.bounds.crashes:
                died = with_replica(world, number, Replica())._replace(crashes=world.crashes + 1)
                yield Step(f"replica {number} is killed", died, world=True)

    def _person(self, world: World, word: str) -> Iterator[Step[World]]:
        spoken = world._replace(words=tuple(sorted((*world.words, word))))
        if word in WORDS:
            item = said(word, self.nodes[0], self.now(world))
            for number, replica in enumerate(world.replicas):
                if replica.epoch == world.epoch:
                    told = self._decides(spoken, number, item, f"a person says {word} to replica {number}", always=True)
                    yield from (step._replace(world=True) for step in told)
            return
        owner = HoldOwner.OPERATOR.value if word == "drain" else HoldOwner.NOBODY.value
        if world.holds[0] != owner:
            text = f"a person {'drains' if word == 'drain' else 'resumes'} {self.nodes[0]} in the scheduler"
            yield Step(text, spoken._replace(holds=(owner, *world.holds[1:])), world=True)

    def now(self, world: World) -> float:
        return START + A_WHILE_S * world.whiles

    def _a_while(self, world: World) -> World:
        return world._replace(whiles=world.whiles + 1)

    def _shown(self, world: World) -> str:
        return ", ".join(f"{node} held by {owner}" for node, owner in zip(self.nodes, world.holds, strict=True))

    def wrong(self, world: World) -> str:
        rows = self.centre.rows(world.rows)
        if errors := [incident.outcome for incident in rows.incidents.values() if "internal error" in incident.outcome]:
            return errors[0]
        held = [node.node for node in rows.nodes.values() if node.held]
        ours = [node for node, owner in zip(self.nodes, world.holds, strict=True) if owner == HoldOwner.US.value]
        for out, where in ((held, "are written down as held"), (ours, "are held in the scheduler")):
            if len(out) > 1:
                return f"{' and '.join(sorted(out))} {where}, and the budget is one node"
        return ""

    def ended(self, world: World) -> bool:
        """One replica leads, nothing is under way, and rows and scheduler say the same of every node."""
        rows = self.centre.rows(world.rows)
        if world.calls or not any(each.epoch == world.epoch and not each.seen for each in world.replicas):
            return False
        return all(
            at_rest(rows, node, owner, faulty=faulty)
            for node, owner, faulty in zip(self.nodes, world.holds, world.faulty, strict=True)
        )
