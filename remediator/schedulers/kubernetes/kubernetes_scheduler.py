"""A Kubernetes cluster as a scheduler: cordon with our marks, observe from watched caches, lift only what is ours.

Every change is decided on the current node and conditional on its version: after a concurrent write, the node is read
again.
"""

from __future__ import annotations

import datetime as dt
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import Any

import msgspec
from msgspec import UNSET
from msgspec.structs import replace

from remediator.model.node_location import NodeLocation
from remediator.model.scheduler_hold import ActionOutcome, ActionResult, HoldOwner, SchedulerNodeState
from remediator.schedulers.kubernetes import pod_eviction
from remediator.schedulers.kubernetes.api_connection import APPLY, MERGE_PATCH, ApiConnection, ApiServerUnavailableError
from remediator.schedulers.kubernetes.api_objects import ListPage, Node, Pod, node_type
from remediator.schedulers.kubernetes.job_owners import JobOwners
from remediator.schedulers.kubernetes.kubernetes_options import KubernetesOptions
from remediator.schedulers.kubernetes.node_cordon import (
    build_condition_apply,
    build_hold_patch,
    build_lift_patch,
    build_operator_hold_patch,
    condition_of,
    describe_node_hold,
    has_leftover_marks,
)
from remediator.schedulers.kubernetes.object_names import HANDS_OFF
from remediator.schedulers.kubernetes.pods import is_work
from remediator.schedulers.kubernetes.watch_cache import ExpiredVersionError, WatchCache, list_pages
from remediator.schedulers.scheduler_protocol import (
    MayBegin,
    NodeCordon,
    check_cordon,
    check_operator_cordon,
    check_operator_uncordon,
    check_resume,
    format_operator_reason,
    format_own_reason,
)
from vocabulary.clock import Clock, SystemClock

log = logging.getLogger(__name__)
NODES = "/api/v1/nodes"
PODS = "/api/v1/pods"
RUNNING = "spec.nodeName!=,status.phase!=Succeeded,status.phase!=Failed"
TRIES = 4
SWEPT_AT_ONCE = 5
CALLS_AT_ONCE = 16  # as many as the client keeps connections; its rate limit sets the pace


class KubernetesScheduler:
    """The cluster that `options` name. Two threads watch it from the first query on."""

    def __init__(self, options: KubernetesOptions | None = None, clock: Clock | None = None) -> None:
        self._options = options or KubernetesOptions()
        self._clock = clock or SystemClock()
        self._connection = ApiConnection(self._options)
        selected = {"labelSelector": self._options.node_selector} if self._options.node_selector else {}
        self._selected = selected
        self._kind = node_type(self._options.place_labels)
        self._nodes = WatchCache(self._connection, self._options, NODES, selected, self._kind)
        self._pods = WatchCache(self._connection, self._options, PODS, {"fieldSelector": RUNNING}, Pod)
        self._jobs = JobOwners(self._connection)
        self._empty: set[tuple[str, str, str]] = set()  # node, uid, since: holds under which nothing was found running
        self._until = 0.0  # when this round stops querying: what is unconfirmed by then is not reported
        self._started = False
        self._lock = threading.Lock()

    def close(self) -> None:
        """Stop watching."""
        self._nodes.close()
        self._pods.close()

    def observe(self, nodes: Collection[str]) -> dict[str, SchedulerNodeState]:
        """Return every one of `nodes` from the watches; with stale watches, none is reported as schedulable."""
        self._until = time.monotonic() + self._options.deadline_s
        self._begin()
        stale = self._nodes.stale() or self._pods.stale()
        if stale:
            return {
                name: SchedulerNodeState(name, None, reason=f"Kubernetes cannot be reached: {stale}") for name in nodes
            }
        known, wanted = self._nodes.items(), frozenset(nodes)
        work: dict[str, list[Pod]] = {}
        for pod in self._pods.items().values():
            if pod.spec.node_name in wanted and is_work(pod, self._options.ignore_namespaces):
                work.setdefault(pod.spec.node_name, []).append(pod)
        self._jobs.begin(self._until)
        self._sweep([known[name] for name in nodes if name in known])
        return {
            name: self._hold(known[name], work.get(name, [])) if name in known else self._unknown(name)
            for name in nodes
        }

    def cordon(self, node: str, reason: str) -> ActionOutcome:
        """Set unschedulable, our taint and our annotations in one conditional write; then our condition."""
        return self._say_outcome(*self._place_hold(node, reason, None))

    def cordon_many(self, cordons: Sequence[NodeCordon], may_begin: MayBegin) -> Iterator[tuple[str, ActionOutcome]]:
        """Read all nodes in one list, then write side by side: first all holds, then all conditions.

        The write is conditional on the version that was listed, so a node that changed since is read again.
        """
        listed = self._listed()

        def hold(each: NodeCordon) -> tuple[ActionOutcome, Node | None] | None:
            may = may_begin((each.node,))
            return self._place_hold(each.node, each.reason, listed.get(each.node)) if may else None

        def say(node: str, outcome: ActionOutcome, seen: Node | None) -> ActionOutcome:
            return self._say_outcome(outcome, self._newest(seen)) if may_begin((node,)) else outcome

        with ThreadPoolExecutor(CALLS_AT_ONCE, thread_name_prefix="cordon") as pool:
            written = zip(cordons, list(pool.map(hold, cordons)), strict=True)
            said = {pool.submit(say, each.node, *result): each.node for each, result in written if result is not None}
            for done in as_completed(said):
                yield said[done], done.result()

    def _place_hold(self, node: str, reason: str, listed: Node | None) -> tuple[ActionOutcome, Node | None]:
        ours = format_own_reason(reason)

        def change(now: Node) -> dict[str, Any] | ActionOutcome:
            hold = describe_node_hold(now, self._options.owner)
            text = ours
            if hold.owner is HoldOwner.SCHEDULER and hold.reason:
                text = format_own_reason(f"{ours} (Kubernetes: {hold.reason})")
            return check_cordon(hold) or build_hold_patch(now, self._options.owner, text, self._time())

        return self._write(node, change, f"Kubernetes schedules nothing new on {node}: {ours}", listed)

    def resume(self, node: str) -> ActionOutcome:
        """Remove our marks in one conditional write; then reset our condition."""

        def change(now: Node) -> dict[str, Any] | ActionOutcome:
            return check_resume(describe_node_hold(now, self._options.owner)) or build_lift_patch(now)

        return self._change(node, change, f"Kubernetes may use {node} again")

    def cordon_for(self, node: str, reason: str) -> ActionOutcome:
        """Set unschedulable with the operator's reason and none of our other marks."""
        theirs = format_operator_reason(reason)

        def change(now: Node) -> dict[str, Any] | ActionOutcome:
            return check_operator_cordon(describe_node_hold(now, self._options.owner)) or build_operator_hold_patch(
                now, theirs
            )

        return self._change(node, change, f"Kubernetes schedules nothing new on {node}: {theirs}")

    def uncordon_for(self, node: str, seen: str) -> ActionOutcome:
        """Set schedulable, and remove our marks and those of an operator's cordon through us."""

        def change(now: Node) -> dict[str, Any] | ActionOutcome:
            if now.metadata.labels.hands_off is not UNSET:
                return ActionOutcome(
                    ActionResult.REFUSED, f"the label {HANDS_OFF} still blocks work on {node}; remove it"
                )
            return check_operator_uncordon(describe_node_hold(now, self._options.owner), seen) or build_lift_patch(now)

        return self._change(node, change, f"Kubernetes may use {node} again")

    def evict(self, node: str) -> ActionOutcome:
        """Evict what runs on a node that we hold, once; the caller retries what a disruption budget refused."""
        try:
            now = self._now(node)
            if isinstance(now, ActionOutcome):
                return now
            hold = describe_node_hold(now, self._options.owner)
            if hold.owner is not HoldOwner.US:
                return ActionOutcome(
                    ActionResult.REFUSED,
                    f"nothing is evicted from {node}, because the controller does not hold it: {hold.reason}",
                )
            return pod_eviction.evict_pods(self._connection, self._options, node, self._work_now(node))
        except ApiServerUnavailableError as error:
            return ActionOutcome(ActionResult.FAILED, str(error))

    def places(self) -> dict[str, NodeLocation] | None:
        """Return node locations from labels. None: unknown now."""
        self._begin()
        if self._nodes.stale():
            return None
        labels = ((name, node.metadata.labels) for name, node in self._nodes.items().items())
        return {
            name: NodeLocation(rack=said.rack, switch=said.switch, image=said.image, driver=said.driver)
            for name, said in labels
        }

    def _begin(self) -> None:
        with self._lock:
            if not self._started:
                self._started = True
                self._nodes.start()
                self._pods.start()
                for cache in (self._nodes, self._pods):
                    cache.wait(self._options.deadline_s / 2)

    def _hold(self, node: Node, work: list[Pod]) -> SchedulerNodeState:
        hold = describe_node_hold(node, self._options.owner)
        jobs = tuple(sorted({self._jobs.of(pod) for pod in work}))
        drained = not work and node.spec.unschedulable and self._is_empty(node, hold)
        patience = self._options.evict_after_s
        leave = bool(work) and hold.owner is HoldOwner.US and patience > 0 and self._held_for(node) >= patience
        return replace(hold, jobs=jobs, drained=drained, evictable=leave)

    def _held_for(self, node: Node) -> float:
        """Return the seconds since our hold was placed; `since` is ours, so it is valid."""
        since = node.metadata.annotations.since.replace("Z", "+00:00")
        return self._clock.wall() - dt.datetime.fromisoformat(since).timestamp()

    def _is_empty(self, node: Node, hold: SchedulerNodeState) -> bool:
        """Return whether nothing runs under our hold, by a fresh query once pods on their way must have arrived."""
        if hold.owner is not HoldOwner.US:
            return True
        key = (node.key, node.metadata.uid, node.metadata.annotations.since)
        if key in self._empty:
            return True
        if self._held_for(node) < self._options.settle_s or time.monotonic() > self._until:
            return False
        try:
            if self._work_now(node.key):
                return False
        except ApiServerUnavailableError:
            return False
        self._empty = {known for known in self._empty if known[0] != node.key} | {key}
        return True

    def _sweep(self, nodes: list[Node]) -> None:
        """Remove our marks where an operator uncordoned a node: our taint would keep work off unnoticed."""
        for node in [n for n in nodes if has_leftover_marks(n, self._options.owner)][:SWEPT_AT_ONCE]:

            def change(now: Node) -> dict[str, Any] | ActionOutcome:
                if has_leftover_marks(now, self._options.owner):
                    return build_lift_patch(now)
                return ActionOutcome(ActionResult.ALREADY, "the controller's marks are already removed")

            if time.monotonic() > self._until:
                return
            outcome = self._change(
                node.key, change, "an operator lifted the hold; the controller's marks are removed as well"
            )
            log.info("%s: %s", node.key, outcome.detail)

    def _change(self, node: str, change: Callable[[Node], dict[str, Any] | ActionOutcome], done: str) -> ActionOutcome:
        """Change a node as `_write` does, and update its condition."""
        return self._say_outcome(*self._write(node, change, done))

    def _write(
        self,
        node: str,
        change: Callable[[Node], dict[str, Any] | ActionOutcome],
        done: str,
        listed: Node | None = None,
    ) -> tuple[ActionOutcome, Node | None]:
        """Read, decide, and write conditionally on what was read; read again after a concurrent change.

        `listed`: the node as just read. Returns the node as last seen too, unless that is unknown.
        """
        try:
            for _ in range(TRIES):
                now, listed = listed or self._now(node), None
                if isinstance(now, ActionOutcome):
                    return now, None
                wanted = change(now)
                if isinstance(wanted, ActionOutcome):
                    return wanted, now
                query = {"fieldManager": self._options.owner}
                answer = self._connection.call("PATCH", f"{NODES}/{node}", query, wanted, MERGE_PATCH)
                if answer.good:
                    return ActionOutcome(ActionResult.DONE, done), self._seen(answer.body)
                if answer.status == 404:
                    return ActionOutcome(ActionResult.UNKNOWN, self._unknown(node).reason), None
                if answer.status != 409:
                    why = f"Kubernetes does not change {node}: {answer.refusal.message}"
                    return ActionOutcome(ActionResult.FAILED, why), None
        except ApiServerUnavailableError as error:
            return ActionOutcome(ActionResult.FAILED, str(error)), None
        why = f"other clients changed {node} during each of {TRIES} attempts"
        return ActionOutcome(ActionResult.FAILED, why), None

    def _say_outcome(self, outcome: ActionOutcome, node: Node | None) -> ActionOutcome:
        """Update our condition after a change, and add why that failed."""
        said = self._say(node, outcome.result) if node is not None else ""
        return replace(outcome, detail=outcome.detail + said) if outcome.result is ActionResult.DONE else outcome

    def _newest(self, node: Node | None) -> Node | None:
        """Return the node as the watch shows it, which may be newer: others may have changed it meanwhile."""
        if node is None or self._nodes.stale():
            return node
        return self._nodes.get(node.key) or node

    def _listed(self) -> dict[str, Node]:
        """Return all nodes, read now; none if the API server does not list them, and each is then read for itself."""
        try:
            pages = list(list_pages(self._connection, NODES, self._selected))
        except (ApiServerUnavailableError, ExpiredVersionError):
            return {}
        nodes = (msgspec.json.decode(raw, type=self._kind) for page in pages for raw in page.items or ())
        return {node.key: node for node in nodes}

    def _say(self, node: Node, result: ActionResult) -> str:
        """Update our condition to the hold. Only operators and dashboards read it, so a failure is only reported."""
        if result is ActionResult.REFUSED:
            return ""
        hold = describe_node_hold(node, self._options.owner)
        reason = hold.reason if hold.owner is HoldOwner.US else ""
        known = condition_of(node)
        if (
            known is not None
            and known.message == (reason or known.message)
            and (known.status == "False") is bool(reason)
        ):
            return ""
        if known is None and not reason:
            return ""
        query = {"fieldManager": self._options.owner, "force": "true"}
        body = build_condition_apply(node, reason, self._time())
        try:
            answer = self._connection.call("PATCH", f"{NODES}/{node.key}/status", query, body, APPLY)
        except ApiServerUnavailableError as error:
            return f" (its condition was not written: {error})"
        return "" if answer.good else f" (its condition was not written: {answer.refusal.message})"

    def _now(self, node: str) -> Node | ActionOutcome:
        """Return the current node. By list, so that the server applies the selector, and one verb fewer is needed."""
        query = {**self._selected, "fieldSelector": f"metadata.name={node}"}
        answer = self._connection.call("GET", NODES, query)
        if not answer.good:
            return ActionOutcome(ActionResult.FAILED, f"Kubernetes does not show {node}: {answer.refusal.message}")
        found = msgspec.json.decode(answer.body, type=ListPage).items
        return self._seen(found[0]) if found else ActionOutcome(ActionResult.UNKNOWN, self._unknown(node).reason)

    def _seen(self, body: bytes | msgspec.Raw) -> Node:
        node = msgspec.json.decode(body, type=self._kind)
        if not self._nodes.stale():
            self._nodes.put(node, node.metadata.resource_version)
        return node

    def _work_now(self, node: str) -> list[Pod]:
        answer = self._connection.call("GET", PODS, {"fieldSelector": f"spec.nodeName={node}"})
        if not answer.good:
            raise ApiServerUnavailableError(f"Kubernetes does not show the pods of {node}: {answer.refusal.message}")
        pods = (
            msgspec.json.decode(raw, type=Pod) for raw in msgspec.json.decode(answer.body, type=ListPage).items or ()
        )
        return [pod for pod in pods if is_work(pod, self._options.ignore_namespaces)]

    def _unknown(self, node: str) -> SchedulerNodeState:
        among = f" among those with {self._options.node_selector}" if self._options.node_selector else ""
        reason = f"Kubernetes has no node {node}{among}; healthd's 'node' must be its name in Kubernetes"
        return SchedulerNodeState(node, None, reason=reason, known=False)

    def _time(self) -> str:
        return dt.datetime.fromtimestamp(self._clock.wall(), dt.timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")
