"""The policies that are compared, and how the plain ones are made of the same steps that playbooks are made of."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from msgspec.structs import replace

from remediator.decide.policy import Policy, Rule
from remediator.model.plan import Step, Told, Verb
from remediator.model.rules import Match

_ABORT = Step(verb=Verb.NOTIFY_TRAINER, how=Told.ABORT.value, timeout_s=120.0)
_CORDON = Step(verb=Verb.CORDON)
_DRAIN = Step(verb=Verb.DRAIN, timeout_s=86400.0)
_REPLACE = (Step(verb=Verb.REPLACE),)
_REBOOT = Step(verb=Verb.REBOOT, timeout_s=1800.0, on_failure=_REPLACE)
_TEST = Step(verb=Verb.PREFLIGHT, how="standard", timeout_s=7200.0, on_failure=_REPLACE)
_RETURN = Step(verb=Verb.RETURN_TO_SERVICE, timeout_s=300.0, on_failure=_REPLACE)


class Compared(NamedTuple):
    """One policy: what it adds to the ones before it."""

    about: str
    acts: bool = True
    shipped: bool = True
    lemons: bool = False
    retest: bool = False


POLICIES: Mapping[str, Compared] = {
    "none": Compared("jobs start again where they were; people find what stays broken", acts=False),
    "reboot-return": Compared("whatever is reported: the node reboots and returns", shipped=False),
    "eject": Compared("whatever is reported: the job stops at once, the node leaves", shipped=False),
    "checkpoint-eject": Compared("the shipped playbook: save where there is time, then leave"),
    "lemons": Compared("the same, and lemons are taken out", lemons=True),
    "retest": Compared("the same, and tests before a return find what hides", lemons=True, retest=True),
    "oracle": Compared("knows every fault beforehand and takes out nothing else", acts=False),
}


def policy_of(name: str, shipped: Policy) -> Policy:
    """The rules of a policy that acts."""
    if POLICIES[name].shipped:
        return Policy([replace(rule, place="") for rule in shipped.rules], shipped.digest, shipped.source)
    middle = ((_REBOOT,),) if name == "reboot-return" else ()
    stages = ((_CORDON, _ABORT), (_DRAIN,), *middle, (_TEST,), (_RETURN,))
    rule = Rule(name=name, why=POLICIES[name].about, match=Match(), stages=stages)
    return Policy([rule], name, name)
