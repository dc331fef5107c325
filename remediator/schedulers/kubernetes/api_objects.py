"""The parts of Kubernetes' objects that we read. What is not named here is skipped while parsing, and costs no memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType, field

from remediator.schedulers.kubernetes import object_names
from remediator.schedulers.kubernetes.kubernetes_options import LABELS, Standing


class NodeAnnotations(msgspec.Struct, frozen=True):
    """Ours."""

    owner: str = field(default="", name=object_names.OWNER)
    reason: str = field(default="", name=object_names.REASON)
    since: str = field(default="", name=object_names.SINCE)
    node_uid: str = field(default="", name=object_names.NODE_UID)


class NodeLabels(msgspec.Struct, frozen=True):
    """The one that tells us to stay away, and those that say where a node stands; `node_type` reads them under other keys."""

    hands_off: str | UnsetType = field(default=UNSET, name=object_names.HANDS_OFF)
    rack: str = field(default="", name=LABELS["rack"])
    switch: str = field(default="", name=LABELS["switch"])
    image: str = field(default="", name=LABELS["image"])
    driver: str = field(default="", name=LABELS["driver"])


class OwnedSpecFields(msgspec.Struct, frozen=True):
    """Whether a writer set ``spec.unschedulable``."""

    unschedulable: dict[str, Any] | UnsetType = field(default=UNSET, name="f:unschedulable")


class OwnedFields(msgspec.Struct, frozen=True):
    """What a writer set."""

    spec: OwnedSpecFields = field(default=OwnedSpecFields(), name="f:spec")


class ManagedField(msgspec.Struct, frozen=True, rename="camel"):
    """One writer, as the API server remembers it."""

    manager: str = ""
    time: str | None = None
    fields: OwnedFields = field(default=OwnedFields(), name="fieldsV1")


class NodeMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Who a node is: a new machine under an old name has another uid."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: NodeLabels = NodeLabels()
    annotations: NodeAnnotations = NodeAnnotations()
    managed_fields: tuple[ManagedField, ...] = ()


class NodeSpec(msgspec.Struct, frozen=True):
    """`taints` whole, with every field: the list is one value to the API server, and others' are written back as read."""

    unschedulable: bool = False
    taints: tuple[dict[str, Any], ...] = ()


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One thing that is said of a node. `status` is ``True``, ``False`` or ``Unknown``."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeStatus(msgspec.Struct, frozen=True):
    """What is said of a node."""

    conditions: tuple[Condition, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """A node."""

    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def key(self) -> str:
        """Its name."""
        return self.metadata.name


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """Who made an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = False


def node_type(keys: Mapping[Standing, str]) -> type[Node]:
    """A node whose labels for these places stand under these keys. A parser for them alone, so that no other is kept."""
    if not keys:
        return Node
    fields = [(place, str, field(default="", name=key)) for place, key in keys.items()]
    labels = msgspec.defstruct("NodeLabels", fields, bases=(NodeLabels,), frozen=True)
    meta = msgspec.defstruct("NodeMeta", [("labels", labels, labels())], bases=(NodeMeta,), rename="camel", frozen=True)
    made = msgspec.defstruct("Node", [("metadata", meta)], bases=(Node,), frozen=True)
    return cast("type[Node]", made)


class PodAnnotations(msgspec.Struct, frozen=True):
    """A kubelet writes this on the image of a pod that it runs from a file."""

    mirror: str | UnsetType = field(default=UNSET, name=object_names.MIRROR)


class PodLabels(msgspec.Struct, frozen=True):
    """Kueue's name of the workload to which a bare pod belongs."""

    pod_group: str = field(default="", name=object_names.POD_GROUP)


class PodMeta(msgspec.Struct, frozen=True, rename="camel"):
    """Who a pod is."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: PodLabels = PodLabels()
    annotations: PodAnnotations = PodAnnotations()
    owner_references: tuple[OwnerReference, ...] = ()
    deletion_timestamp: str | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Where it runs, and how long it may take to leave."""

    node_name: str = ""
    termination_grace_period_seconds: int | None = 30


class PodStatus(msgspec.Struct, frozen=True):
    """How far it is."""

    phase: str = ""


class Pod(msgspec.Struct, frozen=True):
    """A pod."""

    metadata: PodMeta
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()

    @property
    def key(self) -> str:
        """Namespace and name."""
        return f"{self.metadata.namespace}/{self.metadata.name}"


class ListMeta(msgspec.Struct, frozen=True, rename="camel"):
    """How far a list goes, and where the next page begins."""

    resource_version: str = ""
    next: str | None = field(default="", name="continue")


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list, its items yet to be read."""

    metadata: ListMeta = ListMeta()
    items: tuple[msgspec.Raw, ...] | None = ()


class WatchEvent(msgspec.Struct, frozen=True):
    """One line of a watch."""

    type: str
    object: msgspec.Raw


class VersionedObject(msgspec.Struct, frozen=True):
    """Any object, for its version alone."""

    metadata: ListMeta


class OwnedObject(msgspec.Struct, frozen=True):
    """Any object, for who made it."""

    metadata: PodMeta


class StatusCause(msgspec.Struct, frozen=True):
    """One of several reasons."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True):
    """More about a refusal."""

    causes: tuple[StatusCause, ...] | None = ()


class ApiStatus(msgspec.Struct, frozen=True):
    """What the API server says when it does not do what it was asked."""

    code: int | None = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """Its reasons one by one, where there are any."""
        return (self.details.causes if self.details else None) or ()
