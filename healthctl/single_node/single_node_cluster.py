"""Starts the two programs of a single-node cluster, and reports the reason whenever one exits."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from healthctl.api_client.remediator_client import RemediatorClient
from healthctl.exit_codes import Failure
from healthctl.process_supervision.supervised_programs import SupervisedPrograms, read_last_line
from healthctl.single_node.home_directory import HomeDirectory
from remediator.model.views import NodeView

READY_DEADLINE_S = 60.0
SETTLE_S = 20.0  # a driver may take seconds to start; until then the health is unknown
LOOK_S = 0.2
RESTARTS_MAX, WITHIN_S = 5, 60.0
PROGRAMS = ("remediator", "healthd")


class SingleNodeCluster:
    """The programs, under a supervisor that restarts them. `over` is set to end them."""

    def __init__(self, home: HomeDirectory, programs: SupervisedPrograms, over: Event) -> None:
        self._home = home
        self._programs = programs
        self._over = over
        self._known = dict.fromkeys(PROGRAMS, 1)
        self._restarts: list[float] = []

    def start(self) -> None:
        """Start both.

        Raises:
            ProgramError: one cannot be executed.
        """
        env = dict(os.environ) | {"PYTHONUNBUFFERED": "1"}
        module = {"remediator": ["remediator", "serve"], "healthd": ["healthd.main"]}
        config = {"remediator": self._home.remediator_config, "healthd": self._home.healthd_config}
        for name in PROGRAMS:
            argv = [sys.executable, "-m", *module[name], "--config", str(config[name])]
            self._programs.start(name, argv, env=env, restart=True)

    def first_word(self, server: RemediatorClient, node: str, *, with_gpus: bool) -> NodeView | None:
        """The node as the controller sees it after its first report, with its GPUs if it has any; None if stopped before.

        Raises:
            Failure: a program keeps exiting, or no report arrived in time; names the log.
        """
        deadline = time.monotonic() + READY_DEADLINE_S
        heard_at: float | None = None
        while not self._over.wait(LOOK_S):
            for name in PROGRAMS:
                if self._programs.starts(name) > 1:
                    raise self._ended(name)
            try:
                found: NodeView | None = server.get(f"/v1/nodes/{node}", NodeView)
            except Failure:
                found = None  # the remediator does not listen yet, or has no report of the node
            if found is not None and found.last_seen is not None:
                heard_at = heard_at or time.monotonic()
                whole = bool(found.gpus) and found.health != "unknown"
                if whole or not with_gpus or time.monotonic() > heard_at + SETTLE_S:
                    return found
            if heard_at is None and time.monotonic() > deadline:
                raise Failure(f"{node} did not report within {READY_DEADLINE_S:g} s; see {self._home.log_dir}")
        return None

    def watch(self) -> Iterator[str]:
        """A message for each restart of a program, until stopped.

        Raises:
            Failure: a program keeps exiting.
        """
        while not self._over.wait(LOOK_S):
            for name in PROGRAMS:
                starts = self._programs.starts(name)
                if starts == self._known[name]:
                    continue
                self._known[name] = starts
                now = time.monotonic()
                self._restarts = [at for at in self._restarts if now - at < WITHIN_S] + [now]
                if len(self._restarts) > RESTARTS_MAX:
                    raise self._ended(name)
                yield f"{name} exited and was restarted; its last message: {read_last_line(self._programs.log(name))}"

    def _ended(self, name: str) -> Failure:
        log: Path = self._programs.log(name)
        return Failure(f"{name} keeps exiting: {read_last_line(log)} (complete log: {log})")
