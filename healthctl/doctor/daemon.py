"""Checks of the running healthd and of the controller it reports to."""

from __future__ import annotations

import http.client
import stat
from collections.abc import Iterator
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit

from healthctl.doctor.diagnosis import Diagnosis, diagnose_absent, diagnose_bad, diagnose_good
from healthctl.node_check.verdict_client import NoAnswerError, query_verdict
from healthd.config import Config

CONNECT_S = 5.0
KUBELET = Path("/var/lib/kubelet")  # exists only on a Kubernetes node
IN_KUBERNETES = (
    "kubectl -n gpu-health describe daemonset healthd; if its events say that the RuntimeClass nvidia is not found, no pod is"
    " ever created: install the NVIDIA GPU operator or create that RuntimeClass, or set healthd.runtimeClassName to an empty text."
    " Outside Kubernetes: systemctl start gpu-healthd"
)


def check_daemon(config: Config, kubelet: Path = KUBELET) -> Iterator[Diagnosis]:
    """Check whether healthd runs, and its verdict."""
    socket = config.run_dir / "healthd.sock"
    try:
        verdict = query_verdict(str(socket), CONNECT_S)
    except NoAnswerError as error:
        todo = IN_KUBERNETES if kubelet.is_dir() else "systemctl start gpu-healthd, then systemctl status gpu-healthd"
        yield diagnose_bad("healthd", str(error), "this node is not monitored", todo)
        return
    reasons = f": {'; '.join(verdict.reasons)}" if verdict.reasons else ""
    found = f"{verdict.node} is {verdict.health}{reasons}"
    if verdict.health in ("healthy", "degraded"):
        yield diagnose_good("healthd", found)
    else:
        yield diagnose_bad(
            "healthd",
            found,
            "no work should be placed on this node",
            "healthctl node check, and docs/reference/healthd.md",
        )


def check_controller(config: Config) -> Iterator[Diagnosis]:
    """Check whether the controller is reachable with the configured address and token."""
    remediator = config.remediator
    if not remediator.url:
        why = "faults are detected locally, but the node is not cordoned and the trainer is not notified"
        yield diagnose_absent("remediator", "none configured", why, "set remediator.url and remediator.token_file")
        return
    yield _check_token(config)
    yield _check_connection(remediator.url)


def _check_token(config: Config) -> Diagnosis:
    path = config.remediator.token_file
    why = "the controller authenticates a node by its token"
    todo = f"'healthctl enroll', with a join secret; or an admin's 'healthctl token issue --node {config.node}'"
    if path is None:
        return diagnose_bad("token", "none configured", why, todo)
    try:
        mode = path.stat().st_mode
        empty = not path.read_text().strip()
    except OSError as error:
        return diagnose_bad("token", f"{path}: {error.strerror}", why, todo)
    if empty:
        return diagnose_bad("token", f"{path} is empty", why, todo)
    if mode & (stat.S_IRWXG | stat.S_IRWXO):
        return diagnose_bad(
            "token", f"{path} can be read by other users ({stat.S_IMODE(mode):04o})", why, f"chmod 0400 {path}"
        )
    return diagnose_good("token", str(path))


def _check_connection(url: str) -> Diagnosis:
    where = urlsplit(url)
    kind = http.client.HTTPSConnection if where.scheme == "https" else http.client.HTTPConnection
    why = "without it the node is not cordoned and the trainer is not notified; healthd queues its findings until then"
    try:
        connection = kind(where.hostname or "", where.port, timeout=CONNECT_S)
        connection.connect()
        connection.close()
    except (OSError, URLError, http.client.HTTPException) as error:
        return diagnose_bad(
            "remediator",
            f"{url}: {error}",
            why,
            "check that it is running, that the name is correct, and that the port is reachable from here",
        )
    return diagnose_good("remediator", f"{url} accepts connections")
