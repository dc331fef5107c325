"""Which pods are work, and to which job a pod belongs. Pure."""

from __future__ import annotations

from collections.abc import Collection

from msgspec import UNSET

from remediator.schedulers.kubernetes.api_objects import OwnerReference, Pod

# What stands between a pod and the object that a user made, with the path under which it is found. Every other owner
# (PyTorchJob, TrainJob, Volcano's Job, RayCluster, a StatefulSet, …) is taken for the user's own.
BETWEEN = {
    ("batch", "Job"): "/apis/batch/v1/namespaces/{namespace}/jobs/{name}",
    ("jobset.x-k8s.io", "JobSet"): "/apis/{api_version}/namespaces/{namespace}/jobsets/{name}",
}


def is_work(pod: Pod, ignore_namespaces: Collection[str]) -> bool:
    """Whether `pod` keeps its node from being drained. One that is ending does, until it is gone."""
    if pod.status.phase in {"Succeeded", "Failed"} or not pod.spec.node_name:
        return False
    if pod.metadata.namespace in ignore_namespaces or pod.metadata.annotations.mirror is not UNSET:
        return False
    maker = controlling_owner(pod.metadata.owner_references)
    return maker is None or not (maker.kind == "DaemonSet" and maker.api_version.startswith("apps/"))


def controlling_owner(references: tuple[OwnerReference, ...]) -> OwnerReference | None:
    """The owner that looks after an object; others only want to be told when it goes."""
    return next((owner for owner in references if owner.controller), None)


def owner_path(owner: OwnerReference, namespace: str) -> str:
    """Where to ask who made `owner`, or nothing where that is of no interest."""
    path = BETWEEN.get((owner.api_version.partition("/")[0], owner.kind), "")
    return path.format(namespace=namespace, name=owner.name, api_version=owner.api_version)


def job_name(pod: Pod, owner: OwnerReference | None) -> str:
    """The job as people look it up: kind, namespace, name."""
    namespace = pod.metadata.namespace
    if owner is not None:
        return f"{owner.kind}/{namespace}/{owner.name}"
    if pod.metadata.labels.pod_group:
        return f"Workload/{namespace}/{pod.metadata.labels.pod_group}"
    return f"Pod/{namespace}/{pod.metadata.name}"
