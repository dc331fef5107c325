"""Every name we write into Kubernetes. A test freezes them: a hold placed by one release is lifted by the next."""

from __future__ import annotations

PREFIX = "gpu-healthd.dev"
TAINT = f"{PREFIX}/held"  # effect NoSchedule, timeAdded is the time of the hold
HANDS_OFF = f"{PREFIX}/hands-off"  # an operator's label on a node that we are to leave alone, whatever its value
OWNER = f"{PREFIX}/owner"
REASON = f"{PREFIX}/reason"  # an operator who writes a reason of their own here takes the hold over
SINCE = f"{PREFIX}/since"
NODE_UID = f"{PREFIX}/node-uid"  # annotations that were carried to another node are nobody's hold
CONDITION = "AcceleratorsHealthy"  # True is good, as with Kubernetes' own Ready

MIRROR = "kubernetes.io/config.mirror"
POD_GROUP = "kueue.x-k8s.io/pod-group-name"
