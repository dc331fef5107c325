"""The layout of a playbook file and of its scenarios. The JSON Schema for editors is generated from it.

playbook: 1 about: what happens when a GPU falls off the bus include: [gpu-memory.yaml]
rules:
  - name: gpu-lost
    why: one sentence for the person at 3 a.m.
    match: {findings: [xid/79], severities: [fatal]}
    steps:
      - [cordon, {notify_trainer: abort, timeout_s: 60}]   # a list runs side by side
      - {alert: a GPU must be replaced}
      - replace
override:
  - {rule: row-remap-pending, mode: approve}               # of an included file, without editing it
"""

from __future__ import annotations

import enum
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from remediator.model.plan_steps import Mode, Retry
from remediator.model.rule_conditions import DAY_S, About, Guards, Match

STEP_SECONDS_MAX = 30 * DAY_S

Name = Annotated[str, Meta(pattern=r"^[a-z0-9][a-z0-9-]{0,79}$", description="Lower case letters, digits and dashes.")]
Text = Annotated[str, Meta(min_length=1, max_length=2000)]
Seconds = Annotated[float, Meta(gt=0, le=STEP_SECONDS_MAX, description="Seconds, at most 30 days.")]
Bare = None | UnsetType  # a verb without a value: `{drain: , timeout_s: 3600}`


class Word(str, enum.Enum):
    """Steps without settings."""

    CORDON = "cordon"
    DRAIN = "drain"
    COLLECT_EVIDENCE = "collect_evidence"
    RESET_GPU = "reset_gpu"
    REBOOT = "reboot"
    PREFLIGHT = "preflight"
    RETURN_TO_SERVICE = "return_to_service"
    REPLACE = "replace"
    TICKET = "ticket"
    ALERT = "alert"
    WATCH = "watch"


class StepDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename={"exec_": "exec"}):
    """One step with its settings: exactly one verb, and its modifiers."""

    cordon: Bare = UNSET
    drain: Bare = UNSET
    notify_trainer: Literal["graceful", "abort", "save_and_relaunch", "save_and_stop", "revert"] | UnsetType = UNSET
    collect_evidence: Bare = UNSET
    reset_gpu: Bare = UNSET
    reboot: Bare = UNSET
    preflight: Literal["gate", "standard", "burn-in"] | UnsetType | None = UNSET
    return_to_service: Bare = UNSET
    replace: Bare = UNSET
    ticket: Text | UnsetType | None = UNSET
    alert: Text | UnsetType | None = UNSET
    watch: Annotated[float, Meta(ge=0, le=STEP_SECONDS_MAX)] | UnsetType | None = UNSET
    exec_: (
        Annotated[Name, Meta(description="Name of a hook that the remediator's configuration lists.")] | UnsetType
    ) = UNSET
    timeout_s: Seconds | None = None
    retry: Retry | None = None
    on_failure: list[Word | StepDocument] | Word | StepDocument | None = None
    mode: Mode = Mode.ACT
    guards: Guards = Guards()


Stage = list[Word | StepDocument] | Word | StepDocument


class RuleDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """When, why, what: the first rule that matches a finding answers it."""

    name: Name
    why: Text
    match: Match = Match()
    mode: Mode = Mode.ACT
    guards: Guards = Guards()
    incident: Annotated[
        About,
        Meta(
            description="job: one incident about the job, whatever number of its nodes; its steps are alert and ticket."
        ),
    ] = About.NODE
    steps: list[Stage] = []


class OverrideDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes to one rule of an included file; what is not given stays unchanged."""

    rule: Name
    enabled: bool = True
    why: Text | None = None
    match: Match | None = None
    mode: Mode | None = None
    guards: Guards | None = None
    steps: list[Stage] | None = None


class PlaybookDocument(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One file. Its own rules come before those of the files it includes, in the order given."""

    playbook: Annotated[Literal[1], Meta(description="Version of this layout.")]
    about: Text = ""
    include: list[Annotated[str, Meta(min_length=1)]] = []
    rules: list[RuleDocument] = []
    override: list[OverrideDocument] = []
