"""What an operator sets once and decisions depend on."""

from __future__ import annotations

import enum

import msgspec

from remediator.decide.budget import Budget
from remediator.decide.policy import Policy


class Mode(str, enum.Enum):
    """RECOMMEND decides and shows, touches nothing; ACT carries decisions out."""

    RECOMMEND = "recommend"
    ACT = "act"


class Settings(msgspec.Struct, frozen=True):
    """Policy, mode, budget, and how long a returned node stays on trial."""

    policy: Policy
    mode: Mode
    budget: Budget
    probation_s: float = 86400.0
