"""Compiles a rule of a file, and checks that the order of its steps can work."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import UNSET

from remediator.decisions.policy import PolicyRule
from remediator.model.plan_steps import ISOLATING, Mode, Step, Verb
from remediator.model.rule_conditions import DAY_S, About, Guards, JobScope
from remediator.playbook.playbook_document import PlaybookDocument, RuleDocument, Stage, StepDocument, Word
from remediator.playbook.playbook_errors import PolicyError
from remediator.playbook.yaml_source import YamlSource

TIMEOUT_S = 300.0
_TIMEOUTS_S = {
    Verb.CORDON: 30 * DAY_S,  # a node is cordoned however long its scheduler is down
    Verb.DRAIN: 7 * DAY_S,
    Verb.WATCH: 30 * DAY_S,
    Verb.PREFLIGHT: 3600.0,
    Verb.REBOOT: 1800.0,
    Verb.COLLECT_EVIDENCE: 120.0,
}
_VERBS = {verb.value if verb is not Verb.EXEC else "exec_": verb for verb in Verb}
_DEFAULTS = {Verb.PREFLIGHT: "gate", Verb.WATCH: "0"}
_NEED_DRAINED = frozenset({Verb.RESET_GPU, Verb.REBOOT})  # would kill running work
_NEED_CORDONED = frozenset({Verb.PREFLIGHT, Verb.RETURN_TO_SERVICE, Verb.REPLACE}) | _NEED_DRAINED

_TELLS_OF_A_JOB = frozenset({Verb.ALERT, Verb.TICKET})
_NOT_LEFT_TO_PEOPLE = frozenset({Verb.PREFLIGHT, Verb.RETURN_TO_SERVICE, Verb.REPLACE})

Place = tuple[str | int, ...]


def compile_rule(rule: RuleDocument, text: YamlSource[PlaybookDocument], at: Place) -> PolicyRule:
    """Compile the rule of a file.

    Raises:
        PolicyError: a step has no verb or several, or comes before what it needs.
    """
    found = PolicyRule(
        name=rule.name,
        why=" ".join(rule.why.split()),
        match=rule.match,
        stages=compile_stages(rule.steps, text, (*at, "steps")),
        mode=rule.mode,
        guards=rule.guards,
        incident=rule.incident,
        place=text.place(*at),
    )
    check_job_rule(found)
    return found


def check_job_rule(rule: PolicyRule) -> None:
    """Check a rule about a job, whose incident has no node to act on.

    Raises:
        PolicyError: a rule with ``incident: job`` has steps other than alert and ticket, has guards, or does not
            require a job.
    """
    if rule.incident is not About.JOB:
        return
    where = f"{rule.place}: {rule.name}: a rule with 'incident: job'"
    wrong = [step for step in rule.steps if step.verb not in _TELLS_OF_A_JOB]
    if wrong or not rule.stages:
        raise PolicyError(
            f"{where} needs steps that are 'alert' or 'ticket'" + (f", not '{wrong[0]}'" if wrong else "")
        )
    if rule.match.job is not JobScope.RUNNING:
        raise PolicyError(f"{where} needs 'job: running' in 'match'")
    if rule.guards != Guards() or any(step.guards != Guards() or step.mode is not Mode.ACT for step in rule.steps):
        raise PolicyError(f"{where} cannot have 'guards' or a 'mode' of single steps; put conditions into 'match'")


def compile_stages(
    stages: Sequence[Stage], text: YamlSource[PlaybookDocument], at: Place
) -> tuple[tuple[Step, ...], ...]:
    """Compile the stages of a plan. Raises as `compile_rule`."""
    plan = []
    done: frozenset[Verb] = frozenset()
    for i, stage in enumerate(stages):
        parallel = list(stage) if isinstance(stage, list) else [stage]
        places = [(*at, i, j) for j in range(len(parallel))] if isinstance(stage, list) else [(*at, i)]
        steps = tuple(_compile_step(item, text, place) for item, place in zip(parallel, places, strict=True))
        if not steps:
            raise PolicyError(f"{text.place(*at, i)}: a stage without steps")
        for step, place in zip(steps, places, strict=True):
            _check_step_order(step, done, text, place)
        _check_plan_end(steps, i == len(stages) - 1, text, (*at, i))
        done |= {step.verb for step in steps}
        plan.append(steps)
    return tuple(plan)


def _check_plan_end(steps: Sequence[Step], is_last: bool, text: YamlSource[PlaybookDocument], at: Place) -> None:  # noqa: FBT001 - a fact, not a switch
    """Check that nothing follows `replace`, in a plan or on a branch of it."""
    for step in steps:
        _check_branch_end(step.on_failure, text, at)
    if any(step.verb is Verb.REPLACE for step in steps) and not (is_last and len(steps) == 1):
        raise PolicyError(f"{text.place(*at)}: 'replace' ends a plan; put it last, in a stage of its own")


def _check_branch_end(branch: Sequence[Step], text: YamlSource[PlaybookDocument], at: Place) -> None:
    for number, step in enumerate(branch):
        _check_plan_end((step,), number == len(branch) - 1, text, at)


def _check_step_order(step: Step, done: frozenset[Verb], text: YamlSource[PlaybookDocument], at: Place) -> None:
    if step.verb is Verb.NOTIFY_TRAINER and Verb.DRAIN in done:
        raise PolicyError(f"{text.place(*at)}: '{step}' comes after 'drain': no rank remains to notify")
    if step.verb is Verb.RETURN_TO_SERVICE and Verb.PREFLIGHT not in done:
        raise PolicyError(f"{text.place(*at)}: a node returns only after a test; put 'preflight' in an earlier stage")
    if step.verb in _NOT_LEFT_TO_PEOPLE and step.mode not in (Mode.ACT, Mode.APPROVE):
        raise PolicyError(
            f"{text.place(*at)}: '{step}' in mode recommend or observe would leave the node in an undefined state; use mode approve"
        )
    if step.verb in _NEED_DRAINED and Verb.DRAIN not in done:
        raise PolicyError(f"{text.place(*at)}: '{step}' would disrupt running work; put 'drain' in an earlier stage")
    if step.verb in _NEED_CORDONED and not done & ISOLATING:
        raise PolicyError(f"{text.place(*at)}: '{step}' needs 'cordon' or 'drain' in an earlier stage")
    before = done
    for branch in step.on_failure:
        _check_step_order(branch, before, text, at)
        before |= {branch.verb}


def _compile_step(item: Word | StepDocument, text: YamlSource[PlaybookDocument], at: Place) -> Step:
    if isinstance(item, Word):
        verb = Verb(item.value)
        return Step(verb=verb, how=_DEFAULTS.get(verb, ""), timeout_s=_TIMEOUTS_S.get(verb, TIMEOUT_S))
    given = [(verb, word) for name, verb in _VERBS.items() if (word := getattr(item, name)) is not UNSET]
    if len(given) != 1:
        found = " and ".join(verb.value for verb, _ in given) or "none"
        raise PolicyError(
            f"{text.place(*at)}: a step must have exactly one of {', '.join(v.value for v in Verb)}; this has {found}"
        )
    ((verb, word),) = given
    if item.retry is not None and not (1 <= item.retry.times <= 100 and 0 <= item.retry.after_s <= DAY_S):
        raise PolicyError(f"{text.place(*at, 'retry')}: give 'times' from 1 to 100 and 'after_s' up to one day")
    failure = item.on_failure
    branch = failure if isinstance(failure, list) else [] if failure is None else [failure]
    return Step(
        verb=verb,
        how=_DEFAULTS.get(verb, "") if word is None else f"{word:g}" if isinstance(word, float | int) else str(word),
        timeout_s=item.timeout_s or _TIMEOUTS_S.get(verb, TIMEOUT_S),
        retry=item.retry,
        on_failure=tuple(_compile_step(each, text, (*at, "on_failure", i)) for i, each in enumerate(branch)),
        mode=item.mode,
        guards=item.guards,
    )
