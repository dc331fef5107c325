"""The inputs of the pipeline. Each carries its own time.

The same inputs in the same order give the same decisions, so the journal of inputs can be replayed.
"""

from __future__ import annotations

import enum

import msgspec

from remediator.model.journal_records import Incident, JobRef
from remediator.model.node_location import NodeLocation
from remediator.model.override_records import AlertSilence
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import ActionOutcome, SchedulerNodeState
from vocabulary.finding import Finding
from vocabulary.order import OrderUpdate


class Input(msgspec.Struct, frozen=True, tag_field="input", kw_only=True):
    """Base of all inputs."""

    at: float


class FindingsReported(Input, frozen=True, tag="findings"):
    """A node's changes in order and, if the report was current, its whole set of active findings."""

    node: str
    boot_id: str
    changes: tuple[Finding, ...] = ()
    active: tuple[Finding, ...] | None = None


class PlacementChanged(Input, frozen=True, tag="placement", omit_defaults=True):
    """The jobs with ranks on a node. `worlds`: the number of ranks of each on all nodes, in the same order."""

    node: str
    jobs: tuple[JobRef, ...]
    worlds: tuple[int, ...] = ()


class InventoryChanged(Input, frozen=True, tag="inventory", omit_defaults=True):
    """The product names of a node's GPUs, its driver and its system image; empty if unknown."""

    node: str
    products: tuple[str, ...]
    driver: str = ""
    image: str = ""


class HoldsObserved(Input, frozen=True, tag="holds"):
    """The scheduler's answers, by node."""

    holds: tuple[SchedulerNodeState, ...]


class ActionEnded(Input, frozen=True, tag="action"):
    """An attempt of one of the controller's own actions has ended."""

    action: str
    outcome: ActionOutcome


class OrderAnswered(Input, frozen=True, tag="order"):
    """A node reported the progress of an order."""

    node: str
    update: OrderUpdate


class StepApproved(Input, frozen=True, tag="approved"):
    """An operator approved a decision, or one step of a plan; `what` is its id."""

    incident: str
    what: str
    actor: str
    address: str = ""  # origin of the request


class IncidentCommandKind(str, enum.Enum):
    """Commands on an incident besides approval."""

    ACKNOWLEDGE = "acknowledge"  # assign to the operator
    NOTE = "note"
    RESOLVE = "resolve"  # close it


class IncidentCommand(Input, frozen=True, tag="person", omit_defaults=True):
    """An operator's command on an incident. `key` identifies the request, so that a repetition is recognised."""

    incident: str
    node: str
    word: IncidentCommandKind
    actor: str
    address: str = ""
    text: str = ""
    key: str = ""


class NodeCommandKind(str, enum.Enum):
    """Commands on a node."""

    HOLD = "hold"  # operator hold
    RELEASE = "release"  # end the hold
    RETIRE = "retire"  # remove from the cluster
    UNRETIRE = "unretire"


class NodeCommand(Input, frozen=True, tag="node_said", omit_defaults=True):
    """An operator's command on a known node. A hold may end by itself, at `until` (UTC s)."""

    node: str
    word: NodeCommandKind
    actor: str
    address: str = ""
    text: str = ""
    until: float | None = None


class ManualCordonKind(str, enum.Enum):
    """Changes in the scheduler in an operator's name."""

    CORDON = "cordon"
    UNCORDON = "uncordon"  # whoever holds it


class ManualCordon(Input, frozen=True, tag="by_hand", omit_defaults=True):
    """An operator cordons or uncordons a node."""

    node: str
    word: ManualCordonKind
    actor: str
    address: str = ""
    text: str = ""


class IncidentReopened(Input, frozen=True, tag="reopened", omit_defaults=True):
    """An operator reopens a closed incident, given as it was closed, with its findings."""

    incident: Incident
    findings: tuple[Finding, ...]
    actor: str
    address: str = ""
    text: str = ""


class PolicyChanged(Input, frozen=True, tag="policy"):
    """The policy and the mode from now on. The first input of every term."""

    digest: str
    source: str
    mode: Mode


class BreakerReset(Input, frozen=True, tag="breaker_reset"):
    """An operator resets the circuit breaker."""

    actor: str
    text: str = ""
    address: str = ""


class ModeSet(Input, frozen=True, tag="mode_set", omit_defaults=True):
    """An operator sets the automation mode; None: back to the configured one."""

    mode: Mode | None
    actor: str
    text: str = ""
    address: str = ""


class ActionCancelled(Input, frozen=True, tag="cancelled", omit_defaults=True):
    """An operator cancels a planned action and what follows it in its plan."""

    action: str
    actor: str
    text: str = ""
    address: str = ""


class AlertsSilenced(Input, frozen=True, tag="silenced", omit_defaults=True):
    """An operator mutes some alerts for a time; actions continue."""

    silence: AlertSilence
    address: str = ""


class SilenceEnded(Input, frozen=True, tag="silence_ended", omit_defaults=True):
    """An operator ends a silence early."""

    silence: str
    actor: str
    text: str = ""
    address: str = ""


class ReceiverTried(Input, frozen=True, tag="receiver_tried", omit_defaults=True):
    """An operator is about to send a receiver a test message."""

    receiver: str
    actor: str
    address: str = ""


class SilenceObserved(Input, frozen=True, tag="silence"):
    """The nodes that are silent for too long, and when each last reported (UTC s). All others report."""

    silent: dict[str, float]


class VerdictsReached(Input, frozen=True, tag="verdicts"):
    """The current conclusions of the controller's detectors: raised, changed or cleared (`remediator.monitoring`)."""

    findings: tuple[Finding, ...]


class TopologyObserved(Input, frozen=True, tag="topology"):
    """Node locations from one source: a file, the scheduler, labels. They replace the same source's earlier ones."""

    source: str
    places: dict[str, NodeLocation]


class Tick(Input, frozen=True, tag="tick"):
    """Time has passed, and perhaps deadlines."""


AnyInput = (
    FindingsReported
    | PlacementChanged
    | InventoryChanged
    | HoldsObserved
    | ActionEnded
    | OrderAnswered
    | StepApproved
    | IncidentCommand
    | NodeCommand
    | ManualCordon
    | IncidentReopened
    | PolicyChanged
    | TopologyObserved
    | SilenceObserved
    | VerdictsReached
    | BreakerReset
    | ModeSet
    | ActionCancelled
    | AlertsSilenced
    | SilenceEnded
    | ReceiverTried
    | Tick
)
