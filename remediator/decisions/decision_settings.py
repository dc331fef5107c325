"""Settings that decisions depend on."""

from __future__ import annotations

from typing import Annotated

import msgspec

from remediator.decisions.isolation_budget import IsolationBudget
from remediator.decisions.policy import Policy
from remediator.model.finding_settlement import COUNTS_S
from remediator.model.plan_steps import Mode


class SilenceLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """When a node counts as silent, and how many silent nodes point to a shared cause."""

    after_s: Annotated[float, msgspec.Meta(ge=1)] = 300.0  # and never sooner than its own report announced
    nodes_min: Annotated[int, msgspec.Meta(ge=2)] = 3  # so many together have a shared cause
    fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.05  # of the cluster
    place_fraction: Annotated[float, msgspec.Meta(gt=0, le=1)] = 0.5  # of a rack or a switch


class DecisionSettings(msgspec.Struct, frozen=True):
    """Policy, mode, budget, and the probation of returned nodes."""

    policy: Policy
    mode: Mode
    budget: IsolationBudget
    probation_s: float = 86400.0
    silence: SilenceLimits = SilenceLimits()
    again_after_s: float = COUNTS_S  # how long an operator's settlement counts against new sightings
