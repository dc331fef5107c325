"""Everything the pipeline may be told. Each carries its own time.

The same inputs in the same order give the same decisions, which is what makes a journal worth keeping.
"""

from __future__ import annotations

import enum

import msgspec

from remediator.model.journal_records import Incident, JobRef
from remediator.model.node_location import NodeLocation
from remediator.model.override_records import AlertSilence
from remediator.model.plan_steps import Mode
from remediator.model.scheduler_hold import ActionOutcome, NodeHold
from vocabulary.finding import Finding
from vocabulary.order import OrderUpdate


class Input(msgspec.Struct, frozen=True, tag_field="input", kw_only=True):
    """Base of all inputs."""

    at: float


class FindingsReported(Input, frozen=True, tag="findings"):
    """A node's changes in their order, and, where the report was current, its whole set of active findings."""

    node: str
    boot_id: str
    changes: tuple[Finding, ...] = ()
    active: tuple[Finding, ...] | None = None


class PlacementChanged(Input, frozen=True, tag="placement", omit_defaults=True):
    """The jobs that have ranks on a node are now these. `worlds`: how many ranks each has on all nodes, in the same order."""

    node: str
    jobs: tuple[JobRef, ...]
    worlds: tuple[int, ...] = ()


class InventoryChanged(Input, frozen=True, tag="inventory", omit_defaults=True):
    """The node's GPUs are now of these product names, under this driver and this image of the system; empty where not told."""

    node: str
    products: tuple[str, ...]
    driver: str = ""
    image: str = ""


class HoldsObserved(Input, frozen=True, tag="holds"):
    """What the scheduler said when it was asked, node by node."""

    holds: tuple[NodeHold, ...]


class ActionEnded(Input, frozen=True, tag="action"):
    """An attempt at something done by the centre itself came back."""

    action: str
    outcome: ActionOutcome


class OrderAnswered(Input, frozen=True, tag="order"):
    """A node said how far an order is."""

    node: str
    update: OrderUpdate


class StepApproved(Input, frozen=True, tag="approved"):
    """A person agreed to a decision, or to one step of a plan; `what` is its id."""

    incident: str
    what: str
    actor: str
    address: str = ""  # where the request came from


class IncidentCommandKind(str, enum.Enum):
    """What a person may say of an incident, short of approving."""

    ACKNOWLEDGE = "acknowledge"  # I look after it
    NOTE = "note"
    RESOLVE = "resolve"  # it is over


class IncidentCommand(Input, frozen=True, tag="person", omit_defaults=True):
    """A person said something about an incident. `key` names the request, so that its repetition can be known."""

    incident: str
    node: str
    word: IncidentCommandKind
    actor: str
    address: str = ""
    text: str = ""
    key: str = ""


class NodeCommandKind(str, enum.Enum):
    """What a person may say of a node."""

    HOLD = "hold"  # hands off: it is mine
    RELEASE = "release"  # no longer
    RETIRE = "retire"  # it is no part of the cluster any more
    UNRETIRE = "unretire"


class NodeCommand(Input, frozen=True, tag="node_said", omit_defaults=True):
    """A person said something of a node that is known. A hold may end by itself, at `until` (UTC s)."""

    node: str
    word: NodeCommandKind
    actor: str
    address: str = ""
    text: str = ""
    until: float | None = None


class ManualCordonKind(str, enum.Enum):
    """What a person may have the centre do in the scheduler, in their name."""

    CORDON = "cordon"
    UNCORDON = "uncordon"  # whoever holds it


class ManualCordon(Input, frozen=True, tag="by_hand", omit_defaults=True):
    """A person wants a node out of the scheduler's service, or in it, as their own deed."""

    node: str
    word: ManualCordonKind
    actor: str
    address: str = ""
    text: str = ""


class IncidentReopened(Input, frozen=True, tag="reopened", omit_defaults=True):
    """A person wants a closed incident open again; here it is as it was closed, with its findings."""

    incident: Incident
    findings: tuple[Finding, ...]
    actor: str
    address: str = ""
    text: str = ""


class PolicyChanged(Input, frozen=True, tag="policy"):
    """From here on this policy decides, and as far as this mode lets it. The first input of every term."""

    digest: str
    source: str
    mode: Mode


class BreakerReset(Input, frozen=True, tag="breaker_reset"):
    """A person has looked, and lets nodes be isolated again."""

    actor: str
    text: str = ""
    address: str = ""


class ModeSet(Input, frozen=True, tag="mode_set", omit_defaults=True):
    """A person says how far automation may go from now on; None: as far as the configuration says."""

    mode: Mode | None
    actor: str
    text: str = ""
    address: str = ""


class ActionCancelled(Input, frozen=True, tag="cancelled", omit_defaults=True):
    """A person wants a planned action not to be carried out, and what was to come after it neither."""

    action: str
    actor: str
    text: str = ""
    address: str = ""


class AlertsSilenced(Input, frozen=True, tag="silenced", omit_defaults=True):
    """A person wants nobody to be told of some alerts for a time; we act all the same."""

    silence: AlertSilence
    address: str = ""


class SilenceEnded(Input, frozen=True, tag="silence_ended", omit_defaults=True):
    """A person ends a silence before its time."""

    silence: str
    actor: str
    text: str = ""
    address: str = ""


class ReceiverTried(Input, frozen=True, tag="receiver_tried", omit_defaults=True):
    """A person is about to send a receiver a test message."""

    receiver: str
    actor: str
    address: str = ""


class SilenceObserved(Input, frozen=True, tag="silence"):
    """The nodes that are silent for too long now, and when each was last heard (UTC s). All others are heard."""

    silent: dict[str, float]


class VerdictsReached(Input, frozen=True, tag="verdicts"):
    """What the centre concluded from many nodes' words, as it stands now: raised, changed or cleared (`remediator.monitoring`)."""

    findings: tuple[Finding, ...]


class TopologyObserved(Input, frozen=True, tag="topology"):
    """Where nodes stand by one source's word: a file, the scheduler, labels. It replaces what the same source said before."""

    source: str
    places: dict[str, NodeLocation]


class Tick(Input, frozen=True, tag="tick"):
    """Time passed; deadlines may have."""


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
