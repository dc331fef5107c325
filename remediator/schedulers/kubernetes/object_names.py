"""Every name we write into Kubernetes. A test freezes them, because one release must lift the holds of another."""

from __future__ import annotations

PREFIX = "gpu-healthd.dev"
TAINT = f"{PREFIX}/held"  # effect NoSchedule, timeAdded is the time of the hold
HANDS_OFF = f"{PREFIX}/hands-off"  # an operator's label for a node that we must leave alone, whatever its value
OWNER = f"{PREFIX}/owner"
REASON = f"{PREFIX}/reason"  # an operator who writes another reason here takes the hold over
SINCE = f"{PREFIX}/since"
NODE_UID = f"{PREFIX}/node-uid"  # annotations copied to another node are no hold
CONDITION = "AcceleratorsHealthy"  # True is good, as with Kubernetes' own Ready

MIRROR = "kubernetes.io/config.mirror"
POD_GROUP = "kueue.x-k8s.io/pod-group-name"
