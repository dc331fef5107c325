"""The startup taint that keeps work from a Kubernetes node until it has passed preflight.

By the node's own pod and its service account, which the shipped admission policy lets change this taint of its own node and nothing else
(`deploy/kubernetes/startup-taint.yaml`). With requests, which a node has anyhow: the official client is 30 MB for two calls.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import requests

KEY = "gpu-healthd.dev/untested"
ACCOUNT = Path("/var/run/secrets/kubernetes.io/serviceaccount")
CALL_S = 10.0
PAUSE_S = 0.5
_OVERTAKEN = (
    requests.codes.conflict,
    requests.codes.unprocessable_entity,
)  # the node changed between the two calls
_LATER = (requests.codes.too_many_requests, requests.codes.service_unavailable, requests.codes.gateway_timeout)


class TaintError(Exception):
    """The taint stays; the message says why, and what to do."""


class ClusterApi(NamedTuple):
    """Address and credentials of the API server; `ca` is a file, "" for plain HTTP."""

    url: str
    token: str
    ca: str


def read_cluster_api(environ: Mapping[str, str], account: Path = ACCOUNT) -> ClusterApi:
    """Read them as Kubernetes provides them to every pod.

    Raises:
        TaintError: this is not a pod, or it has no token.
    """
    host, port = environ.get("KUBERNETES_SERVICE_HOST", ""), environ.get("KUBERNETES_SERVICE_PORT", "443")
    if not host:
        raise TaintError("KUBERNETES_SERVICE_HOST is not set: this is not a Kubernetes pod")
    try:
        token = (account / "token").read_text().strip()
    except OSError as error:
        reason = f"{account}/token cannot be read ({error.strerror})"
        raise TaintError(
            f"{reason}: give the pod a serviceAccountName, and automountServiceAccountToken: true"
        ) from None
    address = f"[{host}]" if ":" in host else host
    return ClusterApi(f"https://{address}:{port}", token, str(account / "ca.crt"))


def remove_taint(api: ClusterApi, node: str, deadline_s: float) -> bool:
    """Remove the taint from `node`; others stay. False if there was none.

    Raises:
        TaintError: refused, or not done within `deadline_s`.
    """
    return _retry_until_deadline(api, node, deadline_s, _try_remove_taint)


def has_taint(api: ClusterApi, node: str, deadline_s: float) -> bool:
    """Whether `node` has the taint.

    Raises:
        TaintError: refused, or no response within `deadline_s`.
    """
    return _retry_until_deadline(
        api,
        node,
        deadline_s,
        lambda session, url: KEY in {t.get("key") for t in _list_taints(_read_node(session, url))},
    )


def _retry_until_deadline(
    api: ClusterApi, node: str, deadline_s: float, attempt: Callable[[requests.Session, str], bool]
) -> bool:
    until = time.monotonic() + deadline_s
    why = "not tried"
    with requests.Session() as session:
        session.headers["Authorization"] = f"Bearer {api.token}"
        session.verify = api.ca or True
        while time.monotonic() < until:
            try:
                return attempt(session, f"{api.url}/api/v1/nodes/{quote(node, safe='')}")
            except requests.RequestException as error:
                why = f"no answer: {error}"
            except _RetryError as error:
                why = str(error)
            time.sleep(PAUSE_S)
    raise TaintError(f"{KEY} on {node}: not removed within {deadline_s:g} s; last error: {why}")


def _try_remove_taint(session: requests.Session, url: str) -> bool:
    seen = _read_node(session, url)
    taints = _list_taints(seen)
    others = [taint for taint in taints if taint.get("key") != KEY]
    if len(others) == len(taints):
        return False
    steps = [
        {"op": "test", "path": "/metadata/resourceVersion", "value": seen["metadata"]["resourceVersion"]},
        {"op": "replace", "path": "/spec/taints", "value": others},
    ]
    done = session.patch(url, json=steps, headers={"Content-Type": "application/json-patch+json"}, timeout=CALL_S)
    if done.status_code in (*_OVERTAKEN, *_LATER):
        raise _RetryError(_describe_response(done))
    if not done.ok:
        raise TaintError(
            f"not allowed to change the node: {_describe_response(done)}; see deploy/kubernetes/startup-taint.yaml"
        )
    return True


def _read_node(session: requests.Session, url: str) -> dict[str, Any]:
    answer = session.get(url, timeout=CALL_S)
    if answer.status_code in _LATER:
        raise _RetryError(_describe_response(answer))
    if not answer.ok:
        raise TaintError(
            f"cannot read the node: {_describe_response(answer)}; see deploy/kubernetes/startup-taint.yaml"
        )
    node: dict[str, Any] = answer.json()
    return node


def _list_taints(node: dict[str, Any]) -> list[dict[str, Any]]:
    return node.get("spec", {}).get("taints") or []


class _RetryError(Exception):
    """A retryable error: a conflicting update, or a busy server."""


def _describe_response(answer: requests.Response) -> str:
    try:
        words = str(answer.json().get("message", ""))
    except (ValueError, AttributeError):
        words = answer.text
    return f"{answer.status_code} {words[:300]}".strip()
