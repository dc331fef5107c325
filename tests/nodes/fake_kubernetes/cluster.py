"""A cluster behind the fake API server, and the people in it: an administrator with kubectl, users with jobs."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml
from kubernetes import client

from remediator.schedulers.kubernetes.kubernetes_options import KubernetesOptions
from remediator.schedulers.kubernetes.kubernetes_scheduler import KubernetesScheduler
from tests.nodes.fake_kubernetes.admission import Policies, user_of, why_not
from tests.nodes.fake_kubernetes.server import Server
from tests.nodes.fake_kubernetes.store import now
from vocabulary.clock import Clock

ROLE = Path(__file__).parents[3] / "deploy" / "kubernetes" / "remediator.yaml"


def documents(path: Path = ROLE) -> list[dict[str, Any]]:
    """Every manifest in a file."""
    return [document for document in yaml.safe_load_all(path.read_text()) if document]


def enforce(server: Server, **accounts: str) -> None:
    """Put the shipped admission policies into force: each of `accounts` is a token and the service account that has it."""
    if not why_not():
        server.policies = Policies(documents(ROLE.with_name("admission.yaml")))
    server.users |= {token: user_of(account) for token, account in accounts.items()}
    server.namespaces["research"] = {"gpu-healthd.dev/evict": "allowed"}


def our_rules() -> list[dict[str, Any]]:
    """What the shipped ClusterRole allows the controller."""
    rules = next(document for document in documents() if document["kind"] == "ClusterRole")["rules"]
    assert isinstance(rules, list)
    return rules


class Cluster:
    """The server with nodes and pods. Two tokens: ``controller`` may do what the shipped role says, ``operator`` everything."""

    def __init__(self, server: Server, place: Path) -> None:
        self.server = server
        self.store = server.store
        self.place = place
        configuration = client.Configuration(host=server.url)
        configuration.api_key = {"BearerToken": "Bearer operator", "authorization": "Bearer operator"}
        self.kubectl = client.CoreV1Api(client.ApiClient(configuration))
        self._numbers = iter(range(1, 10**9))
        self._schedulers: list[KubernetesScheduler] = []

    def options(self, **changes: Any) -> KubernetesOptions:
        """How our backend reaches this cluster."""
        entries = {
            "clusters": [{"name": "c", "cluster": {"server": self.server.url}}],
            "users": [{"name": "u", "user": {"token": "centre"}}],
            "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        }
        path = self.place / "kubeconfig"
        path.write_text(yaml.safe_dump({"apiVersion": "v1", "kind": "Config", "current-context": "x", **entries}))
        quick = {"deadline_s": 20.0, "stale_after_s": 0.3, "settle_s": 0.0, "calls_per_s": 1000.0}
        return KubernetesOptions(**{"kubeconfig": str(path), **quick, **changes})

    def scheduler(self, clock: Clock | None = None, **changes: Any) -> KubernetesScheduler:
        """Our backend for this cluster; it ends with it."""
        found = KubernetesScheduler(self.options(**changes), clock)
        self._schedulers.append(found)
        return found

    def close(self) -> None:
        """Let every scheduler go."""
        for found in self._schedulers:
            found.close()
        self.kubectl.api_client.close()

    def node(self, name: str, **meta: Any) -> dict[str, Any]:
        """A node that is ready, with a taint of its own as GPU nodes have."""
        ready = {
            "type": "Ready",
            "status": "True",
            "reason": "KubeletReady",
            "message": "kubelet is posting ready status",
        }
        ready |= {"lastHeartbeatTime": now(), "lastTransitionTime": now()}
        taint = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
        meta = {**meta, "labels": {"nvidia.com/gpu.present": "true", **meta.get("labels", {})}}
        thing = {"metadata": {"name": name, **meta}, "spec": {"taints": [taint]}, "status": {"conditions": [ready]}}
        return self.store.create("nodes", thing)

    def pod(
        self, node: str, name: str = "", namespace: str = "research", grace: int = 30, **meta: Any
    ) -> dict[str, Any]:
        """A pod that runs on `node`; `maker` in `meta` is the object that made it."""
        if maker := meta.pop("maker", None):
            meta["ownerReferences"] = [reference(maker)]
        thing = {
            "metadata": {"name": name or f"pod-{next(self._numbers)}", "namespace": namespace, **meta},
            "spec": {
                "nodeName": node,
                "terminationGracePeriodSeconds": grace,
                "containers": [{"name": "train", "image": "train"}],
            },
            "status": {"phase": "Running"},
        }
        return self.store.create("pods", thing)

    def made(self, plural: str, name: str, maker: dict[str, Any] | None = None) -> dict[str, Any]:
        """An object that makes pods, or other such objects."""
        meta: dict[str, Any] = {"name": name, "namespace": "research"}
        if maker is not None:
            meta["ownerReferences"] = [reference(maker)]
        return self.store.create(plural, {"metadata": meta})

    def budget(self, name: str, labels: dict[str, str], allowed: int) -> None:
        """A PodDisruptionBudget in the users' namespace."""
        numbers = {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}
        spec = {"selector": {"matchLabels": labels}, "minAvailable": 1}
        meta = {"name": name, "namespace": "research"}
        self.store.create("poddisruptionbudgets", {"metadata": meta, "spec": spec, "status": numbers})

    def cordon(self, node: str, reason: str = "") -> None:
        """``kubectl cordon``, and a reason where we look for one."""
        self.kubectl.patch_node(node, {"spec": {"unschedulable": True}}, field_manager="kubectl-cordon")
        if reason:
            self.annotate(node, reason)

    def annotate(self, node: str, reason: str) -> None:
        """``kubectl annotate --overwrite`` with our key for reasons."""
        body = {"metadata": {"annotations": {"gpu-healthd.dev/reason": reason}}}
        self.kubectl.patch_node(node, body, field_manager="kubectl-annotate")

    def uncordon(self, node: str) -> None:
        """``kubectl uncordon``: it knows nothing of our marks."""
        self.kubectl.patch_node(node, {"spec": {"unschedulable": None}}, field_manager="kubectl-uncordon")

    def see(self, node: str) -> dict[str, Any]:
        """The node as it is kept."""
        return self.store.get("nodes", "", node)


def reference(maker: dict[str, Any]) -> dict[str, Any]:
    """The owner reference of a controller."""
    meta = maker["metadata"]
    names = {"apiVersion": maker["apiVersion"], "kind": maker["kind"], "name": meta["name"], "uid": meta["uid"]}
    return {**names, "controller": True, "blockOwnerDeletion": True}


@contextlib.contextmanager
def running(place: Path, nodes: int = 2) -> Iterator[Cluster]:
    """A cluster of so many nodes, ``node1`` and on."""
    with Server({"centre": our_rules(), "operator": None}) as server:
        enforce(server, centre="remediator")
        cluster = Cluster(server, place)
        for number in range(1, nodes + 1):
            cluster.node(f"node{number}")
        try:
            yield cluster
        finally:
            cluster.close()
