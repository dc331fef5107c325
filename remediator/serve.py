"""Wire the centre together and run it until told to stop."""

from __future__ import annotations

import contextlib
import logging
import signal
from pathlib import Path
from types import FrameType
from typing import Any

import uvicorn
from starlette.applications import Starlette

from remediator.act.deeds import Deeds
from remediator.act.local import LocalScheduler
from remediator.act.scheduler import Scheduler
from remediator.act.slurm import SlurmScheduler
from remediator.act.webhooks.outbox import Outbox
from remediator.api.app import build_app
from remediator.api.service import Service, Wakeups
from remediator.config import Config, SchedulerConfig
from remediator.decide.settings import Settings
from remediator.engine import Engine, Snapshot
from remediator.performer import Performer
from remediator.playbook.load import load_policy
from remediator.policy_reload import PolicyReload
from remediator.roster import Roster
from remediator.store.deliveries import DeliveryStore
from remediator.store.journal import Journal
from remediator.store.tokens import Tokens
from vocabulary.clock import Clock, SystemClock

log = logging.getLogger(__name__)
BACKLOG = 2048


class _Server(uvicorn.Server):
    """uvicorn, but long polls end when a signal asks it to stop, instead of being cut off."""

    def __init__(self, app: Starlette, address: tuple[str, int], wakeups: Wakeups) -> None:
        host, port = address
        options: dict[str, Any] = {
            "backlog": BACKLOG,
            "log_level": "warning",
            "access_log": False,
            "timeout_graceful_shutdown": 5,
        }
        super().__init__(uvicorn.Config(app, host=host, port=port, **options))
        self._wakeups = wakeups

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn at SIGTERM and SIGINT."""
        self._wakeups.end()
        super().handle_exit(sig, frame)


def serve(config: Config) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        PolicyError: a playbook is wrong. StoreError: the database cannot be used, or another remediator uses it.
    """
    policy = load_policy(config.playbook_paths, config.hooks)
    clock = SystemClock()
    journal = Journal(config.database)
    wakeups = Wakeups()
    roster = Roster()
    performer = Performer(
        config.cluster,
        scheduler(config.scheduler, clock, roster),
        Deeds(config.hooks, Outbox(config.alerts, DeliveryStore(journal.engine), config.cluster, clock)),
        clock,
        config.scheduler.poll_s,
        config.scheduler.poll_busy_s,
        config.alerts,
    )

    def published(snapshot: Snapshot) -> None:
        performer.look(snapshot)
        wakeups.wake()

    with contextlib.closing(journal):
        settings = Settings(policy=policy, mode=config.mode, budget=config.budget, probation_s=config.probation_s)
        engine = Engine(journal, settings, clock, published)
        reload = PolicyReload(config, engine)
        service = Service(config, clock, engine, journal, performer, roster, Tokens(journal.engine), wakeups, reload)
        engine.start()
        performer.start(engine)
        log.info(
            "cluster %s, epoch %d, mode %s, policy %s %s, on %s",
            config.cluster,
            engine.epoch,
            config.mode.value,
            policy.source,
            policy.digest,
            config.listen,
        )
        try:
            for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again after it has stopped
                signal.signal(number, lambda *_: None)
            signal.signal(signal.SIGHUP, lambda *_: reload.begin())
            _Server(build_app(service), config.address, wakeups).run()
        finally:
            performer.stop()
            engine.stop()


def scheduler(config: SchedulerConfig, clock: Clock, roster: Roster) -> Scheduler:
    """The backend the configuration names."""
    if config.kind == "slurm":
        return SlurmScheduler(config.slurm)
    return LocalScheduler(Path(config.state_file), clock, lambda: roster.running(clock.wall()))
