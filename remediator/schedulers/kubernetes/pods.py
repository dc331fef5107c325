"""Which pods are work, and which job a pod belongs to. Pure."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import UNSET

from remediator.schedulers.kubernetes.api_objects import OwnerReference, Pod

# Intermediate owners between a pod and the object that a user made, with their API paths. Every other owner
# (PyTorchJob, TrainJob, Volcano's Job, RayCluster, a StatefulSet, …) counts as the user's own.
BETWEEN = {
    ("batch", "Job"): "/apis/batch/v1/namespaces/{namespace}/jobs/{name}",
    ("jobset.x-k8s.io", "JobSet"): "/apis/{api_version}/namespaces/{namespace}/jobsets/{name}",
}


def is_work(pod: Pod, ignore_namespaces: Collection[str]) -> bool:
    """Return whether `pod` blocks a drain. A terminating one does until it has ended."""
    if pod.status.phase in {"Succeeded", "Failed"} or not pod.spec.node_name:
        return False
    if pod.metadata.namespace in ignore_namespaces or pod.metadata.annotations.mirror is not UNSET:
        return False
    maker = controlling_owner(pod.metadata.owner_references)
    return maker is None or not (maker.kind == "DaemonSet" and maker.api_version.startswith("apps/"))


def controlling_owner(references: tuple[OwnerReference, ...]) -> OwnerReference | None:
    """Return the controlling owner of an object; the others are only garbage-collection references."""
    return next((owner for owner in references if owner.controller), None)


def owner_path(owner: OwnerReference, namespace: str) -> str:
    """Return the path to read `owner`'s own owner; empty if that is not needed."""
    path = BETWEEN.get((owner.api_version.partition("/")[0], owner.kind), "")
    return path.format(namespace=namespace, name=owner.name, api_version=owner.api_version)


def job_name(pod: Pod, owner: OwnerReference | None) -> str:
    """Return the job's name for operators: kind, namespace, name."""
    namespace = pod.metadata.namespace
    if owner is not None:
        return f"{owner.kind}/{namespace}/{owner.name}"
    if pod.metadata.labels.pod_group:
        return f"Workload/{namespace}/{pod.metadata.labels.pod_group}"
    return f"Pod/{namespace}/{pod.metadata.name}"
