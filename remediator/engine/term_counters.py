"""Counters of this leader term for `/metrics`, counted from what each batch wrote; they outlive the counted records.

Counters that are plotted start at 0. One that began at 1 would hide its first event: `increase()` compares two samples.
"""

from __future__ import annotations

from collections.abc import Iterable

from prometheus_client import CollectorRegistry, Counter, Histogram

from remediator.model.journal_records import Action, ActionState, Answer, IncidentState
from remediator.model.plan_steps import Verb
from remediator.state.state_changes import StateChanges

# From a trainer's order, done within a tenth of a second, to a half-hour burn-in and a drain that waits a day for its
# job.
ACTION_BUCKETS_S = (0.1, 0.3, 1.0, 3.0, 10.0, 30.0, 120.0, 600.0, 3600.0, 21600.0, 86400.0)


class TermCounters:
    """Counters of one term; they restart at zero with the next leader."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        text = "Audit log lines by kind, since this leader started."
        self._audit = Counter("remediator_audit_events", text, ["kind", "drill"], registry=self.registry)
        text = "Decisions by answer and rule, since this leader started."
        self._decisions = Counter("remediator_decisions", text, ["answer", "rule"], registry=self.registry)
        text = "Finished actions by verb and final state, since this leader started."
        self._actions = Counter("remediator_actions_ended", text, ["verb", "state"], registry=self.registry)
        text = "Time from planning an action to its end."
        self._action_seconds = Histogram(
            "remediator_action_seconds", text, ["verb"], registry=self.registry, buckets=ACTION_BUCKETS_S
        )
        for drill in ("true", "false"):
            self._audit.labels("incident_opened", drill)
        for verb in Verb:
            self._action_seconds.labels(verb.value)
            for state in (state for state in ActionState if state.final):
                self._actions.labels(verb.value, state.value)
        self._ended: dict[str, str] = {}  # action → its incident, while open: an ended action may be written again

    def expect(self, rules: Iterable[str]) -> None:
        """Add the rules that decide from now on, at zero."""
        for rule in ("", *rules):
            for answer in Answer:
                self._decisions.labels(answer.value, rule)

    def count(self, changes: StateChanges) -> None:
        """Count what one batch wrote."""
        for event in changes.audit:
            self._audit.labels(event.kind, _boolean_word(event.injected)).inc()
        for decision in changes.decisions.values():
            self._decisions.labels(decision.answer.value, decision.rule).inc()
        for action in changes.actions.values():
            if action.state.final and action.id not in self._ended:
                self._count_ended(action)
        closed = {i.id for i in changes.incidents.values() if i.state is IncidentState.CLOSED}
        if closed:
            self._ended = {action: incident for action, incident in self._ended.items() if incident not in closed}

    def _count_ended(self, action: Action) -> None:
        self._ended[action.id] = action.incident
        self._actions.labels(action.verb, action.state.value).inc()
        if action.finished_at is not None:
            self._action_seconds.labels(action.verb).observe(max(0.0, action.finished_at - action.planned_at))


def _boolean_word(truth: bool) -> str:  # noqa: FBT001 - a truth to be spelt
    return "true" if truth else "false"
