"""What an operator sets once and decisions depend on."""

from __future__ import annotations

import msgspec

from remediator.decide.budget import Budget
from remediator.decide.policy import Policy
from remediator.model.plan import Mode


class Settings(msgspec.Struct, frozen=True):
    """Policy, mode, budget, and how long a returned node stays on trial."""

    policy: Policy
    mode: Mode
    budget: Budget
    probation_s: float = 86400.0
