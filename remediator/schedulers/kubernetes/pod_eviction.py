"""Evicts the pods of one node through the eviction API only, so that disruption budgets are respected.

One pass over the node. The engine retries refused evictions, with back-off and until the step's deadline; then
operators take over.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

from remediator.model.scheduler_hold import ActionOutcome, ActionResult
from remediator.schedulers.kubernetes.api_connection import BUDGET, ApiAnswer, ApiConnection, ApiServerUnavailableError
from remediator.schedulers.kubernetes.api_objects import Pod
from remediator.schedulers.kubernetes.kubernetes_options import KubernetesOptions
from vocabulary.text.plurals import format_count

NAMED_MAX = 5


def evict_pods(connection: ApiConnection, options: KubernetesOptions, node: str, work: Sequence[Pod]) -> ActionOutcome:
    """Evict each of `work` that is not leaving already. DONE when all were evicted or have ended."""
    asked, refused = 0, []
    until = time.monotonic() + options.deadline_s
    for pod in work:
        if pod.metadata.deletion_timestamp:
            continue
        if time.monotonic() > until:
            refused.append(f"{pod.key}: no time left in this pass")
            continue
        try:
            path = f"/api/v1/namespaces/{pod.metadata.namespace}/pods/{pod.metadata.name}/eviction"
            answer = connection.call("POST", path, body=build_eviction_request(pod, options.grace_s))
        except ApiServerUnavailableError as error:
            return ActionOutcome(ActionResult.FAILED, str(error))
        if answer.good or answer.status == 404:
            asked += 1
        elif answer.status != 409:  # a conflict is the uid: another pod has the name, and ours has ended
            refused.append(f"{pod.key}: {_refusal_reason(answer)}")
    if refused:
        more = f" and {len(refused) - NAMED_MAX} more" if len(refused) > NAMED_MAX else ""
        return ActionOutcome(ActionResult.FAILED, f"not evicted from {node}: {'; '.join(refused[:NAMED_MAX])}{more}")
    if not work:
        return ActionOutcome(ActionResult.ALREADY, f"no work on {node}")
    return ActionOutcome(ActionResult.DONE, f"{format_count(asked, 'pod')} asked to leave {node}")


def build_eviction_request(pod: Pod, grace_s: int) -> dict[str, Any]:
    """Build the request: this very pod, with at least `grace_s` to save its state."""
    options: dict[str, Any] = {"preconditions": {"uid": pod.metadata.uid}}
    own = pod.spec.termination_grace_period_seconds
    if own is not None and own < grace_s:
        options["gracePeriodSeconds"] = grace_s
    meta = {"name": pod.metadata.name, "namespace": pod.metadata.namespace}
    return {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": meta, "deleteOptions": options}


def _refusal_reason(answer: ApiAnswer) -> str:
    refusal = answer.refusal
    said = next((cause.message for cause in refusal.causes if cause.reason == BUDGET), "")
    return said or refusal.message or f"HTTP {answer.status}"
