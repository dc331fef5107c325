"""Runs one replica: standby on the same address until leadership is free, then leader, and exit at the end of the term."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable
from functools import partial
from types import FrameType

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from remediator.api.handler_context import LongPollWakeups
from remediator.api.heartbeat_lane import HeartbeatLane
from remediator.api.latency_histogram import measure_event_loop_lag
from remediator.api.leader_gateway import LeaderGateway
from remediator.config import Config
from remediator.engine.policy_reload import PolicyReloader
from remediator.serving.garbage_collection import YOUNG_S, GarbageCollection
from remediator.serving.http_protocol import KEEP_ALIVE_S, BoundedHttpProtocol, Lane
from remediator.serving.leader_term import LeaderTerm
from remediator.serving.listener import Listener, raise_file_limit
from remediator.store import leader_address
from remediator.store.database import driver_message
from remediator.store.journal import Journal, LeadTakenError, StoreError
from remediator.store.leader_address import LeaderAddress
from remediator.web.web_application import WebApplication
from vocabulary.messages import message_decoders

log = logging.getLogger(__name__)
SWITCH_S = 0.0001  # a computing thread delays each turn of a request by this; Python's default is 5 ms
CAMPAIGN_S = 0.3
ENDS_WITHIN_S = 10.0


def _ignore_lag(_: float) -> None:
    """A standby has no metric of it."""


class _DrainingServer(uvicorn.Server):
    """uvicorn behind our own listener. On a stop signal, long polls are answered instead of being cut off."""

    def __init__(self, app: LeaderGateway, config: Config, wakeups: LongPollWakeups) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                http=BoundedHttpProtocol,
                proxy_headers=False,  # the audit log and the limits use the peer's real address
                server_header=False,
                timeout_graceful_shutdown=5,
                timeout_keep_alive=int(KEEP_ALIVE_S),
            )
        )
        self.listener = Listener(config.address, config.tls, config.limits, self._make_protocol)
        self.count_lag: Callable[[float], None] = _ignore_lag
        self.lane: Lane | None = None  # of the term in which this process leads
        self._lag: asyncio.Task[None] | None = None
        self._where = f"cluster {config.cluster}, on {config.listen}"
        self._wakeups = wakeups

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until asked to stop.

        Raises:
            StoreError: the address cannot be used.
        """
        self.listener.bind()
        log.info("%s", self._where)
        super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn once its loop runs."""
        await super().startup(sockets or [])
        self._lag = asyncio.create_task(measure_event_loop_lag(self._count_lag))
        self.listener.open()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn when it was asked to stop."""
        self.listener.close()
        if self._lag is not None:
            self._lag.cancel()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn on SIGTERM and SIGINT."""
        self._wakeups.end()
        super().handle_exit(sig, frame)

    def _count_lag(self, lag_s: float) -> None:
        self.count_lag(lag_s)  # another one from the moment when this process leads

    def _make_protocol(self) -> BoundedHttpProtocol:
        protocol = BoundedHttpProtocol(self.config, self.server_state, self.lifespan.state)
        protocol.lane = self._find_lane
        return protocol

    def _find_lane(self) -> Lane | None:
        return self.lane


class Replica:
    """One of the processes that serve a cluster."""

    def __init__(self, config: Config, reload: PolicyReloader, journal: Journal) -> None:
        self.why = ""  # reason of an unrequested exit
        self._config = config
        self._reload = reload
        self._journal = journal
        self._wakeups = LongPollWakeups()
        pages = (
            WebApplication(config, partial(leader_address.read_leader_address, journal.engine))
            if config.web.enabled
            else None
        )
        self._front = LeaderGateway(self._wakeups, pages)
        self._server = _DrainingServer(self._front, config, self._wakeups)
        self._term: LeaderTerm | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        """Serve until asked to stop, or until the term ends."""
        candidate = threading.Thread(target=self._campaign_until_leader, name="candidate", daemon=True)
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again after it has stopped
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: self._read_again())
        candidate.start()
        self._server.run()
        self._stopping.set()
        if not self.why:  # otherwise the new leader finishes what is running
            candidate.join()
            if self._term is not None:
                self._term.stop()

    def _campaign_until_leader(self) -> None:
        """Campaign until this process leads, then lead."""
        try:
            while not self._stopping.is_set():
                term = self._new_term() if self._campaign() else None
                if term is not None:
                    self._lead(term)
                    return
                self._stopping.wait(CAMPAIGN_S)
        except StoreError as error:
            self._end(str(error))
        except (SQLAlchemyError, OSError) as error:  # the database is down; the next process becomes a standby
            self._end(f"taking leadership failed: {driver_message(error)}")
        except Exception as error:
            log.exception("taking leadership failed")
            self._end(f"taking leadership failed: {error}")

    def _new_term(self) -> LeaderTerm | None:
        try:
            return LeaderTerm(self._config, self._reload, self._journal, self._wakeups, self._end)
        except LeadTakenError:  # this process paused after it had won, and another one was faster
            return None

    def _lead(self, term: LeaderTerm) -> None:
        self._term = term
        term.start()
        sys.setswitchinterval(SWITCH_S)
        threading.Thread(target=self._collect, name="collector", daemon=True).start()
        self._server.count_lag = term.service.loop_lag.count
        self._server.lane = HeartbeatLane(term.service).answer
        self._front.lead(term.service)
        self._publish_address()

    def _publish_address(self) -> None:
        host, config = socket.gethostname(), self._config
        with contextlib.suppress(SQLAlchemyError):  # only for operators' convenience
            leader_address.write_leader_address(
                self._journal.engine, LeaderAddress(host[:64], config.listen[:64], config.web.url)
            )

    def _collect(self) -> None:
        collection = GarbageCollection(time.monotonic())
        while not self._stopping.wait(YOUNG_S):
            collection.step(time.monotonic())

    def _campaign(self) -> bool:
        try:
            won = self._journal.leadership.campaign()
        except (SQLAlchemyError, OSError) as error:
            self._front.word = f"cannot read the leader from the database: {str(error).partition(chr(10))[0]}"
            return False
        self._front.word = "taking leadership" if won else "another replica leads"
        return won

    def _end(self, why: str) -> None:
        """Exit the process: a new one becomes a standby, without this one's state or threads."""
        if self.why:
            return
        self.why = why
        log.critical("%s", why)
        self._server.should_exit = True
        self._wakeups.end()
        if self._term is not None:
            self._term.give_up()
        last = threading.Timer(ENDS_WITHIN_S, os._exit, (1,))  # a hook or the scheduler may block a thread for long
        last.daemon = True
        last.start()

    def _read_again(self) -> None:
        self._server.listener.read_certificate()
        self._reload.begin()


def serve_replica(config: Config) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        PolicyError: a playbook is invalid.
        StoreError: the database cannot be used, another remediator has exclusive access, or leadership was lost.
    """
    message_decoders.build_decoders()
    reload = PolicyReloader(config)
    raise_file_limit()
    journal = Journal(config.database)
    with contextlib.closing(journal):
        if journal.alone and not journal.leadership.campaign():
            raise StoreError(journal.taken())
        replica = Replica(config, reload, journal)
        replica.run()
    if replica.why:
        raise StoreError(replica.why)
