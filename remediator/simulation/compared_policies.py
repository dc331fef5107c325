"""The compared policies; the plain ones are built from the same steps as playbooks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from remediator.decisions.policy import Policy, PolicyRule
from remediator.model.plan_steps import Step, TrainerNotice, Verb
from remediator.model.rule_conditions import Match

_ABORT = Step(verb=Verb.NOTIFY_TRAINER, how=TrainerNotice.ABORT.value, timeout_s=120.0)
_CORDON = Step(verb=Verb.CORDON)
_DRAIN = Step(verb=Verb.DRAIN, timeout_s=86400.0)
_REPLACE = (Step(verb=Verb.REPLACE),)
_REBOOT = Step(verb=Verb.REBOOT, timeout_s=1800.0, on_failure=_REPLACE)
_TEST = Step(verb=Verb.PREFLIGHT, how="standard", timeout_s=7200.0, on_failure=_REPLACE)
_RETURN = Step(verb=Verb.RETURN_TO_SERVICE, timeout_s=300.0, on_failure=_REPLACE)


class ComparedPolicy(NamedTuple):
    """One policy: what it adds to the ones before it."""

    about: str
    acts: bool = True
    shipped: bool = True
    lemons: bool = False
    retest: bool = False


POLICIES: Mapping[str, ComparedPolicy] = {
    "none": ComparedPolicy("jobs restart on the same nodes; operators find persistent faults", acts=False),
    "reboot-return": ComparedPolicy("on any finding, the node reboots and returns", shipped=False),
    "eject": ComparedPolicy("on any finding, the job stops at once and the node leaves", shipped=False),
    "checkpoint-eject": ComparedPolicy("the shipped playbook: save if there is time, then leave"),
    "lemons": ComparedPolicy("the same, plus isolation of lemons", lemons=True),
    "retest": ComparedPolicy("the same, plus tests before a return that find hidden faults", lemons=True, retest=True),
    "oracle": ComparedPolicy("knows every fault in advance and isolates nothing else", acts=False),
}


def compared_policy(name: str, shipped: Policy) -> Policy:
    """Return the rules of a policy that acts."""
    if POLICIES[name].shipped:
        return Policy([replace(rule, place="") for rule in shipped.rules], shipped.digest, shipped.source)
    middle = ((_REBOOT,),) if name == "reboot-return" else ()
    stages = ((_CORDON, _ABORT), (_DRAIN,), *middle, (_TEST,), (_RETURN,))
    rule = PolicyRule(name=name, why=POLICIES[name].about, match=Match(), stages=stages)
    return Policy([rule], name, name)
