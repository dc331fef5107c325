"""Finds the job of a pod by owner references: Job, JobSet, TrainJob, PyTorchJob, Volcano's Job, or the pod itself."""

from __future__ import annotations

import time
from collections import OrderedDict

import msgspec

from remediator.schedulers.kubernetes.api_connection import ApiConnection, ApiServerUnavailableError
from remediator.schedulers.kubernetes.api_objects import OwnedObject, OwnerReference, Pod
from remediator.schedulers.kubernetes.pods import controlling_owner, job_name, owner_path

ONLY_METADATA = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1"
KNOWN_MAX = 20_000
ASKED_AT_ONCE = 50
STEPS_MAX = 4


class JobOwners:
    """Caches owners: they never change while an object lives, and a uid is never reused."""

    def __init__(self, connection: ApiConnection) -> None:
        self._connection = connection
        self._made_by: OrderedDict[str, OwnerReference | None] = OrderedDict()
        self._budget = 0
        self._until = 0.0

    def begin(self, until: float) -> None:
        """Start a new round with a deadline (monotonic) and a query limit. Unresolved pods use their nearest owner."""
        self._budget = ASKED_AT_ONCE
        self._until = until

    def of(self, pod: Pod) -> str:
        """Return the name of the job of `pod`, as far as known."""
        owner = controlling_owner(pod.metadata.owner_references)
        for _ in range(STEPS_MAX):
            above = self._above(owner, pod.metadata.namespace) if owner is not None else None
            if above is None:
                break
            owner = above
        return job_name(pod, owner)

    def _above(self, owner: OwnerReference, namespace: str) -> OwnerReference | None:
        path = owner_path(owner, namespace)
        if not path:
            return None
        if owner.uid in self._made_by:
            self._made_by.move_to_end(owner.uid)
            return self._made_by[owner.uid]
        if self._budget <= 0 or time.monotonic() > self._until:
            return None
        self._budget -= 1
        try:
            answer = self._connection.call("GET", path, accept=ONLY_METADATA)
        except ApiServerUnavailableError:
            self._budget = 0
            return None
        if answer.good:
            meta = msgspec.json.decode(answer.body, type=OwnedObject).metadata
            self._remember(owner.uid, controlling_owner(meta.owner_references) if meta.uid == owner.uid else None)
        elif answer.status in {403, 404}:
            self._remember(owner.uid, None)
        return self._made_by.get(owner.uid)

    def _remember(self, uid: str, above: OwnerReference | None) -> None:
        self._made_by[uid] = above
        while len(self._made_by) > KNOWN_MAX:
            self._made_by.popitem(last=False)
