"""Runs in a pod of a Kubernetes Indexed Job: the ranks of one node, once. Kubernetes makes the next attempt.

A pod is a node. Its number is JOB_COMPLETION_INDEX, which Kubernetes sets; the manifest sets the number of pods
(NNODES) and the first one's address (MASTER_ADDR, MASTER_PORT). The pod ends with its ranks' exit code, which the
manifest's podFailurePolicy reads.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping

from healthd.launcher.backends.local_backend import LocalBackend, LocalRun
from healthd.launcher.scheduler_backend import Attempt, BackendError

DEFAULT_PORT = 29400


class PodBackend(LocalBackend):
    """This pod, under its node's name."""

    name = "kubernetes"

    def __init__(self, environ: Mapping[str, str]) -> None:
        super().__init__([environ.get("HEALTHD_NODE") or socket.gethostname()])
        self._index = _parse_variable(environ, "JOB_COMPLETION_INDEX")
        self._pods = _parse_variable(environ, "NNODES")
        self._port = _parse_variable(environ, "MASTER_PORT", DEFAULT_PORT)
        self._address = _require_variable(environ, "MASTER_ADDR")
        self._job = _require_variable(environ, "HEALTHD_JOB")
        if self._index >= self._pods:
            raise BackendError(
                f"JOB_COMPLETION_INDEX={self._index} does not fit NNODES={self._pods}; pods count from 0"
            )
        self.attempts_before = _parse_variable(environ, "HEALTHD_ATTEMPTS_BEFORE", 0)

    def job(self) -> str:
        """The same in all pods of a job, and on every attempt."""
        return self._job

    def start(self, attempt: Attempt) -> LocalRun:
        """Start this pod's ranks as children; their numbers follow those of the previous pods."""
        shared = attempt.shared_environment(self._address, self._port)
        if attempt.per_node:
            shared |= {"NNODES": str(self._pods), "PET_NNODES": str(self._pods)}
        else:
            shared |= {"WORLD_SIZE": str(self._pods * attempt.world)}
        try:
            return LocalRun(attempt, {**os.environ, **shared}, first_rank=self._index * attempt.world)
        except OSError as error:
            raise BackendError(f"cannot start a rank: {error}") from error


def _require_variable(environ: Mapping[str, str], name: str) -> str:
    text = environ.get(name, "")
    if not text:
        raise BackendError(f"{name} is not set; deploy/kubernetes/training-job.yaml shows what a pod needs")
    return text


def _parse_variable(environ: Mapping[str, str], name: str, default: int | None = None) -> int:
    text = environ.get(name, "") if default is not None else _require_variable(environ, name)
    if default is not None and not text:
        return default
    if not text.isascii() or not text.isdigit():
        raise BackendError(f"{name}={text!r} is not a whole number")
    return int(text)
