"""Options of the Kubernetes backend."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec

from remediator.schedulers.kubernetes.object_names import PREFIX

LocationKey = Literal["rack", "switch", "image", "driver"]
LABELS: dict[LocationKey, str] = {
    "rack": f"{PREFIX}/rack",
    "switch": f"{PREFIX}/switch",
    "image": f"{PREFIX}/image",
    "driver": f"{PREFIX}/driver",
}

Seconds = Annotated[float, msgspec.Meta(gt=0)]


class KubernetesOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which cluster and nodes, call limits, and whether running pods are evicted.

    Args:
        kubeconfig: a file; empty: the service account of our own pod.
        context: of that file; empty: its current one.
        node_selector: a label selector; nodes outside it are never changed, and are reported so.
        place_labels: the labels for a node's location and software; unnamed ones keep our own key.
        ignore_namespaces: whose pods are neither work nor evicted: only namespaces into which no user may write.
        owner: our name in annotations and as field manager; two controllers of one cluster need two.
        deadline_s: for each call, including retries and waits.
        stale_after_s: how long the last data is used without a connection.
        quiet_s: a watch that is silent for so long (not even a bookmark, due each minute) is reopened.
        settle_s: minimum age of a hold of ours before "drained" is reported: a pod may still be on its way.
        calls_per_s: of all calls together, bursts of twice as many.
        evict_after_s: evict what still runs on a held node after this time; 0: never, wait until it ends.
        grace_s: an evicted pod gets at least this long to save its state; its own grace period counts if it is longer.
    """

    kubeconfig: str = ""
    context: str = ""
    node_selector: str = ""
    place_labels: dict[LocationKey, str] = {}
    ignore_namespaces: tuple[str, ...] = ("gpu-health",)
    owner: str = "gpu-healthd"
    deadline_s: Seconds = 10.0
    stale_after_s: Seconds = 15.0
    quiet_s: Seconds = 90.0
    settle_s: Annotated[float, msgspec.Meta(ge=0)] = 5.0
    calls_per_s: Seconds = 20.0
    evict_after_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
    grace_s: Annotated[int, msgspec.Meta(ge=0)] = 120
