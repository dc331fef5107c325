"""The eviction subresource: preconditions, disruption budgets, and a pod that is told to end."""

from __future__ import annotations

import copy
from typing import Any

from tests.nodes.fake_kubernetes.schema import problems
from tests.nodes.fake_kubernetes.store import RefusedError, Store, Thing, now


def _goes_freely(pod: Thing, budget: Thing) -> bool:
    """Whether a pod that is not ready may go though its budget allows no disruption (``unhealthyPodEvictionPolicy``)."""
    if pod.get("status", {}).get("phase") in {"Pending", "Succeeded", "Failed"}:
        return True
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in pod["status"].get("conditions", []))
    if ready or not any(c["type"] == "Ready" for c in pod["status"].get("conditions", [])):
        return False  # of a pod without that condition the tests say nothing: it counts as ready
    policy = budget["spec"].get("unhealthyPodEvictionPolicy", "IfHealthyBudget")
    return bool(policy == "AlwaysAllow" or budget["status"]["currentHealthy"] >= budget["status"]["desiredHealthy"] > 0)


def evict(store: Store, namespace: str, name: str, body: Any) -> Thing:
    """Mark the pod as ending, unless its budget allows no disruption.

    Raises:
        RefusedError: 422 for a body that the schema does not allow, 404, 409 for another uid, 429 by a budget, 500 by two.
    """
    wrong = list(problems(body, "V1Eviction"))
    if wrong or body.get("kind") != "Eviction" or body["metadata"].get("name") != name:
        raise RefusedError(422, "Invalid", "; ".join(wrong) or "no eviction of this pod")
    with store.changed:
        pod = store.get("pods", namespace, name)
        options = body.get("deleteOptions") or {}
        uid = (options.get("preconditions") or {}).get("uid")
        if uid not in {None, pod["metadata"]["uid"]}:
            raise RefusedError(409, "Conflict", f"Precondition failed: UID in precondition: {uid}")
        budgets = [
            budget
            for (where, _), budget in store.things["poddisruptionbudgets"].items()
            if where == namespace
            and budget["spec"]["selector"]["matchLabels"].items() <= pod["metadata"].get("labels", {}).items()
        ]
        if len(budgets) > 1:
            raise RefusedError(500, "InternalError", "This pod has more than one PodDisruptionBudget")
        if budgets and budgets[0]["status"]["disruptionsAllowed"] <= 0 and not _goes_freely(pod, budgets[0]):
            cause = {
                "reason": "DisruptionBudget",
                "message": f"The disruption budget {budgets[0]['metadata']['name']} needs all its pods",
            }
            raise RefusedError(429, "TooManyRequests", "Cannot evict pod as it would violate a budget.", [cause])
        after = copy.deepcopy(pod)
        grace = options.get("gracePeriodSeconds", pod["spec"].get("terminationGracePeriodSeconds", 30))
        after["metadata"] |= {"deletionTimestamp": now(), "deletionGracePeriodSeconds": grace}
        store._put("pods", (namespace, name), pod, after)
    return {"apiVersion": "v1", "kind": "Status", "status": "Success"}
