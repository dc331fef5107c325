"""The parts of Kubernetes objects that we read. Other fields are skipped while parsing, and use no memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, cast

import msgspec
from msgspec import UNSET, UnsetType, field

from remediator.schedulers.kubernetes import object_names
from remediator.schedulers.kubernetes.kubernetes_options import LABELS, LocationKey


class NodeAnnotations(msgspec.Struct, frozen=True):
    """Our annotations."""

    owner: str = field(default="", name=object_names.OWNER)
    reason: str = field(default="", name=object_names.REASON)
    since: str = field(default="", name=object_names.SINCE)
    node_uid: str = field(default="", name=object_names.NODE_UID)


class NodeLabels(msgspec.Struct, frozen=True):
    """The label of a node to leave alone, and location labels; `node_type` reads them under other keys."""

    hands_off: str | UnsetType = field(default=UNSET, name=object_names.HANDS_OFF)
    rack: str = field(default="", name=LABELS["rack"])
    switch: str = field(default="", name=LABELS["switch"])
    image: str = field(default="", name=LABELS["image"])
    driver: str = field(default="", name=LABELS["driver"])


class OwnedSpecFields(msgspec.Struct, frozen=True):
    """Whether a writer set ``spec.unschedulable``."""

    unschedulable: dict[str, Any] | UnsetType = field(default=UNSET, name="f:unschedulable")


class OwnedFields(msgspec.Struct, frozen=True):
    """The fields a writer set."""

    spec: OwnedSpecFields = field(default=OwnedSpecFields(), name="f:spec")


class ManagedField(msgspec.Struct, frozen=True, rename="camel"):
    """One writer, as the API server records it."""

    manager: str = ""
    time: str | None = None
    fields: OwnedFields = field(default=OwnedFields(), name="fieldsV1")


class NodeMeta(msgspec.Struct, frozen=True, rename="camel"):
    """A node's identity: a new machine under an old name has another uid."""

    name: str
    uid: str = ""
    resource_version: str = ""
    labels: NodeLabels = NodeLabels()
    annotations: NodeAnnotations = NodeAnnotations()
    managed_fields: tuple[ManagedField, ...] = ()


class NodeSpec(msgspec.Struct, frozen=True):
    """`taints` with every field: the API server replaces the whole list, so others' taints are written back as read."""

    unschedulable: bool = False
    taints: tuple[dict[str, Any], ...] = ()


class Condition(msgspec.Struct, frozen=True, rename="camel"):
    """One condition of a node. `status` is ``True``, ``False`` or ``Unknown``."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    last_transition_time: str | None = None


class NodeStatus(msgspec.Struct, frozen=True):
    """A node's status."""

    conditions: tuple[Condition, ...] = ()


class Node(msgspec.Struct, frozen=True):
    """A node."""

    metadata: NodeMeta
    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()

    @property
    def key(self) -> str:
        """The node's name."""
        return self.metadata.name


class OwnerReference(msgspec.Struct, frozen=True, rename="camel"):
    """The owner of an object."""

    api_version: str
    kind: str
    name: str
    uid: str
    controller: bool | None = False


def node_type(keys: Mapping[LocationKey, str]) -> type[Node]:
    """Return a node type whose location labels have these keys; its parser keeps no other labels."""
    if not keys:
        return Node
    fields = [(place, str, field(default="", name=key)) for place, key in keys.items()]
    labels = msgspec.defstruct("NodeLabels", fields, bases=(NodeLabels,), frozen=True)
    meta = msgspec.defstruct("NodeMeta", [("labels", labels, labels())], bases=(NodeMeta,), rename="camel", frozen=True)
    made = msgspec.defstruct("Node", [("metadata", meta)], bases=(Node,), frozen=True)
    return cast("type[Node]", made)


class PodAnnotations(msgspec.Struct, frozen=True):
    """A kubelet sets this on the mirror of a static pod."""

    mirror: str | UnsetType = field(default=UNSET, name=object_names.MIRROR)


class PodLabels(msgspec.Struct, frozen=True):
    """Kueue's name of the workload of a bare pod."""

    pod_group: str = field(default="", name=object_names.POD_GROUP)


class PodMeta(msgspec.Struct, frozen=True, rename="camel"):
    """A pod's identity."""

    name: str
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    labels: PodLabels = PodLabels()
    annotations: PodAnnotations = PodAnnotations()
    owner_references: tuple[OwnerReference, ...] = ()
    deletion_timestamp: str | None = None


class PodSpec(msgspec.Struct, frozen=True, rename="camel"):
    """Its node, and how long it may take to leave."""

    node_name: str = ""
    termination_grace_period_seconds: int | None = 30


class PodStatus(msgspec.Struct, frozen=True):
    """Its phase."""

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
    """Where the next page of a list begins."""

    resource_version: str = ""
    next: str | None = field(default="", name="continue")


class ListPage(msgspec.Struct, frozen=True):
    """One page of a list, its items not parsed yet."""

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
    """Any object, for its owners alone."""

    metadata: PodMeta


class StatusCause(msgspec.Struct, frozen=True):
    """One of several reasons."""

    reason: str = ""
    message: str = ""


class StatusDetails(msgspec.Struct, frozen=True):
    """Details of a refusal."""

    causes: tuple[StatusCause, ...] | None = ()


class ApiStatus(msgspec.Struct, frozen=True):
    """The API server's answer to a request that it refused."""

    code: int | None = 0
    reason: str = ""
    message: str = ""
    details: StatusDetails | None = None

    @property
    def causes(self) -> tuple[StatusCause, ...]:
        """Return its reasons one by one, if any."""
        return (self.details.causes if self.details else None) or ()
