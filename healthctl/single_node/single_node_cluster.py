"""Brings the two programs of a cluster of one up, and says of each that ends why."""

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
SETTLE_S = 20.0  # a driver may take seconds to start; until then nobody knows what this node is
LOOK_S = 0.2
RESTARTS_MAX, WITHIN_S = 5, 60.0
PROGRAMS = ("remediator", "healthd")


class SingleNodeCluster:
    """The programs, under a supervisor that starts each again when it ends. `over` is set when they are to end."""

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
        """The node as the centre sees it once it has reported, its GPUs too where it has some; None if we are to end before.

        Raises:
            Failure: a program does not stay up, or nothing was reported in time; names the log.
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
                found = None  # it does not listen yet, or has not heard of the node
            if found is not None and found.last_seen is not None:
                heard_at = heard_at or time.monotonic()
                whole = bool(found.gpus) and found.health != "unknown"
                if whole or not with_gpus or time.monotonic() > heard_at + SETTLE_S:
                    return found
            if heard_at is None and time.monotonic() > deadline:
                raise Failure(f"{node} did not report within {READY_DEADLINE_S:g} s; look into {self._home.log_dir}")
        return None

    def watch(self) -> Iterator[str]:
        """A sentence for each program that ended and was started again, until we are to end.

        Raises:
            Failure: they do not stay up.
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
                yield f"{name} ended and was started again; before, it said: {read_last_line(self._programs.log(name))}"

    def _ended(self, name: str) -> Failure:
        log: Path = self._programs.log(name)
        return Failure(f"{name} does not stay up: {read_last_line(log)} (whole log: {log})")
