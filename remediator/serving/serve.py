"""Run one replica: stand by behind the same door until the lead is free, lead, and end with the term."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import sys
import threading
import time
from functools import partial
from types import FrameType

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from remediator.api.front import Front
from remediator.api.service import Wakeups
from remediator.config import Config
from remediator.policy_reload import PolicyReload
from remediator.serving.collection import YOUNG_S, Collection
from remediator.serving.http_protocol import KEEP_ALIVE_S, Careful
from remediator.serving.listener import Listener, allow_many_files
from remediator.serving.term import Term
from remediator.store import whereabouts
from remediator.store.database import words_of
from remediator.store.journal import Journal, LeadTakenError, StoreError
from remediator.store.whereabouts import Whereabouts
from remediator.web.app import Web
from vocabulary import decoders

log = logging.getLogger(__name__)
SWITCH_S = 0.0001  # a thread that computes gives way to requests so soon; with Python's 5 ms each of a request's turns waits so long
CAMPAIGN_S = 0.3
ENDS_WITHIN_S = 10.0


class _Server(uvicorn.Server):
    """uvicorn behind our own listener; and long polls end when a signal asks it to stop, instead of being cut off."""

    def __init__(self, app: Front, config: Config, wakeups: Wakeups) -> None:
        super().__init__(
            uvicorn.Config(
                app,
                log_level="warning",
                access_log=False,
                http=Careful,
                proxy_headers=False,  # the audit log and the limits go by the address that really speaks
                server_header=False,
                timeout_graceful_shutdown=5,
                timeout_keep_alive=int(KEEP_ALIVE_S),
            )
        )
        self.listener = Listener(config.address, config.tls, config.limits, self._speak)
        self._where = f"cluster {config.cluster}, on {config.listen}"
        self._wakeups = wakeups

    def run(self, sockets: list[socket.socket] | None = None) -> None:
        """Serve until asked to stop.

        Raises:
            StoreError: the address cannot be listened on.
        """
        self.listener.bind()
        log.info("%s", self._where)
        super().run(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn once its loop runs."""
        await super().startup(sockets or [])
        self.listener.open()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Called by uvicorn when it has been asked to stop."""
        self.listener.close()
        await super().shutdown(sockets)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn at SIGTERM and SIGINT."""
        self._wakeups.end()
        super().handle_exit(sig, frame)

    def _speak(self) -> Careful:
        return Careful(self.config, self.server_state, self.lifespan.state)


class Replica:
    """One process among those that serve a cluster."""

    def __init__(self, config: Config, reload: PolicyReload, journal: Journal) -> None:
        self.why = ""  # it ends although nobody asked it to
        self._config = config
        self._reload = reload
        self._journal = journal
        self._wakeups = Wakeups()
        pages = Web(config, partial(whereabouts.read, journal.engine)) if config.web.enabled else None
        self._front = Front(self._wakeups, pages)
        self._server = _Server(self._front, config, self._wakeups)
        self._term: Term | None = None
        self._stopping = threading.Event()

    def run(self) -> None:
        """Serve until told to stop, or until the term is over."""
        candidate = threading.Thread(target=self._stand, name="candidate", daemon=True)
        for number in (signal.SIGTERM, signal.SIGINT):  # uvicorn raises them again after it has stopped
            signal.signal(number, lambda *_: None)
        signal.signal(signal.SIGHUP, lambda *_: self._read_again())
        candidate.start()
        self._server.run()
        self._stopping.set()
        if not self.why:  # otherwise what is under way is not ours to finish any more
            candidate.join()
            if self._term is not None:
                self._term.stop()

    def _stand(self) -> None:
        """Campaign until the lead is ours, then lead."""
        try:
            while not self._stopping.is_set():
                term = self._new_term() if self._campaign() else None
                if term is not None:
                    self._lead(term)
                    return
                self._stopping.wait(CAMPAIGN_S)
        except StoreError as error:
            self._end(str(error))
        except (SQLAlchemyError, OSError) as error:  # the database went away meanwhile; the next process stands by anew
            self._end(f"taking the lead failed: {words_of(error)}")
        except Exception as error:
            log.exception("taking the lead failed")
            self._end(f"taking the lead failed: {error}")

    def _new_term(self) -> Term | None:
        try:
            return Term(self._config, self._reload, self._journal, self._wakeups, self._end)
        except LeadTakenError:  # this process stood still after it had won, and another one was quicker
            return None

    def _lead(self, term: Term) -> None:
        self._term = term
        term.start()
        sys.setswitchinterval(SWITCH_S)
        threading.Thread(target=self._collect, name="collector", daemon=True).start()
        self._front.lead(term.service)
        self._tell_where()

    def _tell_where(self) -> None:
        host, config = socket.gethostname(), self._config
        with contextlib.suppress(SQLAlchemyError):  # it is for people's convenience
            whereabouts.tell(self._journal.engine, Whereabouts(host[:64], config.listen[:64], config.web.url))

    def _collect(self) -> None:
        collection = Collection(time.monotonic())
        while not self._stopping.wait(YOUNG_S):
            collection.step(time.monotonic())

    def _campaign(self) -> bool:
        try:
            won = self._journal.leadership.campaign()
        except (SQLAlchemyError, OSError) as error:
            self._front.word = f"the database cannot be asked who leads: {str(error).partition(chr(10))[0]}"
            return False
        self._front.word = "taking the lead" if won else "another remediator leads"
        return won

    def _end(self, why: str) -> None:
        """The process ends: a new one stands by in its place, with nothing left of this one's knowledge or threads."""
        if self.why:
            return
        self.why = why
        log.critical("%s", why)
        self._server.should_exit = True
        self._wakeups.end()
        if self._term is not None:
            self._term.give_up()
        last = threading.Timer(ENDS_WITHIN_S, os._exit, (1,))  # a hook or a dead scheduler may keep a thread for long
        last.daemon = True
        last.start()

    def _read_again(self) -> None:
        self._server.listener.read_certificate()
        self._reload.begin()


def serve(config: Config) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        PolicyError: a playbook is wrong. StoreError: the database cannot be used, another remediator has it for itself, or
        the lead was lost.
    """
    decoders.build()
    reload = PolicyReload(config)
    allow_many_files()
    journal = Journal(config.database)
    with contextlib.closing(journal):
        if journal.alone and not journal.leadership.campaign():
            raise StoreError(journal.taken())
        replica = Replica(config, reload, journal)
        replica.run()
    if replica.why:
        raise StoreError(replica.why)
