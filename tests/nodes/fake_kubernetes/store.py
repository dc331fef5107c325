"""What an API server keeps: objects with versions, who set which field, and the recent past that watches read."""

from __future__ import annotations

import copy
import datetime as dt
import threading
import uuid
from collections.abc import Callable
from typing import Any, NamedTuple

from tests.nodes.fake_kubernetes import patches
from tests.nodes.fake_kubernetes.schema import problems

Thing = dict[str, Any]
Admit = Callable[[Thing, Thing], None]
DROPPED_EMPTY = {
    "annotations",
    "labels",
    "finalizers",
    "ownerReferences",
}  # a server keeps no empty map and no empty list of these


class Kind(NamedTuple):
    """One resource: its group and version, its kind, and its schema where Kubernetes itself defines it."""

    api_version: str
    kind: str
    schema: str = ""

    @property
    def group(self) -> str:
        return self.api_version.rpartition("/")[0]


KINDS = {
    "nodes": Kind("v1", "Node", "V1Node"),
    "pods": Kind("v1", "Pod", "V1Pod"),
    "jobs": Kind("batch/v1", "Job", "V1Job"),
    "poddisruptionbudgets": Kind("policy/v1", "PodDisruptionBudget", "V1PodDisruptionBudget"),
    "jobsets": Kind("jobset.x-k8s.io/v1alpha2", "JobSet"),
    "trainjobs": Kind("trainer.kubeflow.org/v1alpha1", "TrainJob"),
}


class RefusedError(Exception):
    """An answer that is no success."""

    def __init__(self, code: int, reason: str, message: str, causes: list[dict[str, str]] | None = None) -> None:
        super().__init__(message)
        self.code, self.reason, self.message, self.causes = code, reason, message, causes or []


class Change(NamedTuple):
    """One line of the past."""

    version: int
    plural: str
    before: Thing | None
    after: Thing | None


def now() -> str:
    return dt.datetime.now(dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Store:
    """Every object. All calls may come from any thread."""

    def __init__(self) -> None:
        self.changed = threading.Condition(threading.RLock())
        self.version = 1000
        self.forgotten = 1000
        self.past: list[Change] = []
        self.things: dict[str, dict[tuple[str, str], Thing]] = {plural: {} for plural in KINDS}

    def get(self, plural: str, namespace: str, name: str) -> Thing:
        with self.changed:
            if (namespace, name) not in self.things[plural]:
                raise RefusedError(404, "NotFound", f'{plural} "{name}" not found')
            return self.things[plural][(namespace, name)]

    def create(self, plural: str, thing: Thing) -> Thing:
        kind = KINDS[plural]
        meta = {"uid": str(uuid.uuid4()), "creationTimestamp": now(), **thing["metadata"]}
        thing = {"apiVersion": kind.api_version, "kind": kind.kind, **copy.deepcopy(thing), "metadata": meta}
        with self.changed:
            key = (meta.get("namespace", ""), meta["name"])
            if key in self.things[plural]:
                raise RefusedError(409, "AlreadyExists", f"{plural} {meta['name']} already exists")
            return self._put(plural, key, None, thing)

    def delete(self, plural: str, namespace: str, name: str) -> None:
        with self.changed:
            before = self.get(plural, namespace, name)
            del self.things[plural][(namespace, name)]
            self.version += 1
            last = copy.deepcopy(before)
            last["metadata"]["resourceVersion"] = str(self.version)
            self._remember(Change(self.version, plural, last, None))

    def forget(self) -> None:
        """Compact: versions before now are gone for every watch that begins later."""
        with self.changed:
            self.past.clear()
            self.forgotten = self.version

    def change(
        self,
        plural: str,
        namespace: str,
        name: str,
        body: Any,
        how: str,
        manager: str,
        part: str,
        *,
        admit: Admit = lambda _before, _after: None,
    ) -> Thing:
        """A patch. `part` is ``status`` for that subresource, else empty: each changes only its own side.

        `admit` sees the object before and after, and raises `RefusedError` for what it does not let through.
        """
        with self.changed:
            before = self.get(plural, namespace, name)
            after = self._apply(before, body, manager, part) if how == "apply" else patches.KINDS[how](before, body)
            wanted = (body if isinstance(body, dict) else after).get("metadata", {})
            for field in ("resourceVersion", "uid"):
                if field in wanted and wanted[field] != before["metadata"][field]:
                    raise RefusedError(409, "Conflict", f"the object has been modified ({field} differs)")
            mine = {"metadata", "status"} if part else {key for key in after if key != "status"}
            after = {**before, **{key: after.get(key) for key in mine if key in after}}
            after["metadata"] = {k: v for k, v in after["metadata"].items() if k not in DROPPED_EMPTY or v}
            if how != "apply":
                _own_what_changed(before, after, manager, part)
            admit(before, after)
            if after == before:
                return before
            return self._put(plural, (namespace, name), before, after)

    def _put(self, plural: str, key: tuple[str, str], before: Thing | None, after: Thing) -> Thing:
        self.version += 1
        after["metadata"]["resourceVersion"] = str(self.version)
        kind = KINDS[plural]
        wrong = list(
            problems(after, kind.schema or "V1ObjectMeta")
            if kind.schema
            else problems(after["metadata"], "V1ObjectMeta")
        )
        if wrong:
            self.version -= 1
            raise RefusedError(422, "Invalid", "; ".join(wrong[:5]))
        self.things[plural][key] = after
        self._remember(Change(self.version, plural, before, after))
        return after

    def _remember(self, change: Change) -> None:
        self.past.append(change)
        self.changed.notify_all()

    def _apply(self, before: Thing, body: Thing, manager: str, part: str) -> Thing:
        """Server-side apply, always by force: what the manager applied before and does not now is removed."""
        after = copy.deepcopy(before)
        entries = after["metadata"].setdefault("managedFields", [])
        sides = {key: value for key, value in body.items() if key not in {"apiVersion", "kind", "metadata"}}
        wanted = dict(patches.leaves(sides))
        mine = next((e for e in entries if (e["manager"], e["operation"]) == (manager, "Apply")), None)
        old = _paths(mine["fieldsV1"]) if mine else set()
        for path in old - wanted.keys():
            patches.without(after, path)
        after = patches.strategic(after, sides)
        _enter(after, manager, "Apply", part, set(wanted))
        return after


def _own_what_changed(before: Thing, after: Thing, manager: str, part: str) -> None:
    old = dict(patches.leaves(_owned(before)))
    new = dict(patches.leaves(_owned(after)))
    set_now = {path for path, value in new.items() if path not in old or old[path] != value}
    over = {path for path in old if path not in new}
    if set_now or over:
        after["metadata"] = copy.deepcopy(after["metadata"])
        _enter(after, manager, "Update", part, set_now, over)


def _owned(thing: Thing) -> Thing:
    meta = {key: thing["metadata"][key] for key in ("annotations", "labels") if key in thing["metadata"]}
    return {"metadata": meta, "spec": thing.get("spec", {}), "status": thing.get("status", {})}


def _enter(
    thing: Thing,
    manager: str,
    operation: str,
    part: str,
    paths: set[patches.Path],
    over: set[patches.Path] = frozenset(),
) -> None:
    """Write into managedFields that `manager` set `paths`, and nobody those that are `over`."""
    kept = []
    mine: set[patches.Path] = set(paths)
    for entry in thing["metadata"].get("managedFields", []):
        owned = _paths(entry["fieldsV1"])
        if (entry["manager"], entry["operation"], entry.get("subresource", "")) == (manager, operation, part):
            mine |= owned - over if operation == "Update" else set()
        elif left := owned - paths - over:
            kept.append({**entry, "fieldsV1": patches.tree(left)})
    entry = {"manager": manager, "operation": operation, "apiVersion": "v1", "time": now(), "fieldsType": "FieldsV1"}
    entry["fieldsV1"] = patches.tree(mine)
    if part:
        entry["subresource"] = part
    thing["metadata"]["managedFields"] = [*kept, *([entry] if mine else [])]


def _paths(tree: Thing, path: patches.Path = ()) -> set[patches.Path]:
    if not tree:
        return {path}
    return {found for name, below in tree.items() for found in _paths(below, (*path, name))}
