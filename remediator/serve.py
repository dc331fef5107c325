"""Run one replica: stand by behind the same door until the lead is free, lead, and end with the term."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import ssl
import threading
from types import FrameType
from typing import Any

import uvicorn
from sqlalchemy.exc import SQLAlchemyError

from remediator.api.front import Front
from remediator.api.service import Wakeups
from remediator.config import Config
from remediator.decide.policy import Policy
from remediator.door import Tls
from remediator.http_protocol import protocol_with
from remediator.playbook.load import load_policy
from remediator.store.journal import Journal, StoreError
from remediator.term import Term

log = logging.getLogger(__name__)
BACKLOG = 2048
CAMPAIGN_S = 0.3
KEEP_ALIVE_S = 75  # nodes report every 10 s: shorter, and each report would open a connection, with TLS a dear one
ENDS_WITHIN_S = 10.0


class _Server(uvicorn.Server):
    """uvicorn, but long polls end when a signal asks it to stop, instead of being cut off."""

    def __init__(self, app: Front, config: Config, wakeups: Wakeups) -> None:
        host, port = config.address
        options: dict[str, Any] = {
            "backlog": BACKLOG,
            "log_level": "warning",
            "access_log": False,
            "http": protocol_with(config.limits.headers_s),
            "proxy_headers": False,  # the audit log and the limits go by the address that really speaks
            "server_header": False,
            "timeout_graceful_shutdown": 5,
            "timeout_keep_alive": KEEP_ALIVE_S,
        }
        if config.tls is not None:
            options["ssl_context_factory"] = lambda *_: tls_context(config.tls)
        super().__init__(uvicorn.Config(app, host=host, port=port, **options))
        self._tls = config.tls
        self._wakeups = wakeups

    def read_certificate(self) -> None:
        """Read the certificate's files again, for connections from now on; what is in force stays if they are wrong."""
        if self._tls is None or self.config.ssl is None:
            return
        try:
            tls_context(self._tls)  # tried on one of its own first
            load_into(self.config.ssl, self._tls)
            log.info("the certificate %s was read again", self._tls.certificate)
        except StoreError as error:
            log.error("%s; the one before stays in force", error)

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        """Called by uvicorn at SIGTERM and SIGINT."""
        self._wakeups.end()
        super().handle_exit(sig, frame)


class Replica:
    """One process among those that serve a cluster."""

    def __init__(self, config: Config, policy: Policy, journal: Journal) -> None:
        self.why = ""  # it ends although nobody asked it to
        self._config = config
        self._policy = policy
        self._journal = journal
        self._wakeups = Wakeups()
        self._front = Front(self._wakeups)
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
                if self._campaign():
                    term = Term(self._config, self._policy, self._journal, self._wakeups, self._end)
                    term.start()
                    self._term = term
                    self._front.lead(term.service)
                    return
                self._stopping.wait(CAMPAIGN_S)
        except StoreError as error:
            self._end(str(error))
        except Exception as error:
            log.exception("taking the lead failed")
            self._end(f"taking the lead failed: {error}")

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
        last = threading.Timer(ENDS_WITHIN_S, os._exit, (1,))  # a hook or a dead scheduler may keep a thread for long
        last.daemon = True
        last.start()

    def _read_again(self) -> None:
        self._server.read_certificate()
        if self._term is not None:
            self._term.service.reload.begin()


def tls_context(tls: Tls | None) -> ssl.SSLContext:
    """What the configuration says, TLS 1.2 at least.

    Raises:
        StoreError: a file cannot be read, or is none of a certificate's.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if tls is not None:
        load_into(context, tls)
    return context


def load_into(context: ssl.SSLContext, tls: Tls) -> None:
    """Read the files of a certificate into a context. Raises as `tls_context`."""
    try:
        context.load_cert_chain(tls.certificate, tls.key)
        if tls.client_ca:
            context.load_verify_locations(tls.client_ca)
    except (OSError, ssl.SSLError) as error:
        files = ", ".join(filter(None, (tls.certificate, tls.key, tls.client_ca)))
        raise StoreError(f"tls: {files}: {error.strerror or error}") from error
    context.verify_mode = {"none": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL}.get(
        tls.client_certificate, ssl.CERT_REQUIRED
    )


def serve(config: Config) -> None:
    """Run until SIGTERM or SIGINT.

    Raises:
        PolicyError: a playbook is wrong. StoreError: the database cannot be used, another remediator has it for itself, or
        the lead was lost.
    """
    policy = load_policy(config.playbook_paths, config.hooks)
    tls_context(config.tls)  # said now, and not by uvicorn's exit
    journal = Journal(config.database)
    with contextlib.closing(journal):
        if journal.alone and not journal.leadership.campaign():
            raise StoreError(journal.taken())
        replica = Replica(config, policy, journal)
        log.info("cluster %s, on %s", config.cluster, config.listen)
        replica.run()
    if replica.why:
        raise StoreError(replica.why)
