"""Polls for tokens issued or revoked by other processes, so that a revocation applies at once, also to open long polls."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable

from sqlalchemy.exc import SQLAlchemyError

from remediator.store.token_store import Tokens

LOOK_S = 0.5

log = logging.getLogger(__name__)


class TokenWatch:
    """A thread that polls every `LOOK_S`. `changed` is called after any change."""

    def __init__(self, tokens: Tokens, changed: Callable[[], None]) -> None:
        self._tokens = tokens
        self._changed = changed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="tokens", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop soon."""
        self._stop.set()

    def _run(self) -> None:
        while not self._stop.is_set():
            try:
                if self._tokens.refresh():
                    self._changed()
            except SQLAlchemyError as error:  # known tokens stay valid: none can be revoked in the meantime
                log.debug("tokens cannot be read: %s", error)
            self._stop.wait(LOOK_S)
