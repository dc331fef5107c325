"""Loads the playbooks at start, at the start of a term and on SIGHUP.

Invalid files replace nothing; the error is shown.
"""

from __future__ import annotations

import logging
import threading

from remediator.config import Config
from remediator.decisions.policy import Policy
from remediator.engine.decision_engine import DecisionEngine
from remediator.playbook.playbook_errors import PolicyError
from remediator.playbook.playbook_loader import load_policy

log = logging.getLogger(__name__)


class PolicyReloader:
    """Replaces the policy as a whole or not at all; `problem` says why the current files are not in use.

    On a standby, the policy read last is the one its term will start with.
    """

    def __init__(self, config: Config) -> None:
        """Read the files.

        Raises:
            PolicyError: they are invalid; there is no earlier policy.
        """
        self.problem = ""
        self._config = config
        self._policy = load_policy(config.playbook_paths, config.hooks)
        self._engine: DecisionEngine | None = None
        self._one_at_a_time = threading.Lock()

    def current(self) -> Policy:
        """Return the policy of the current files if valid, otherwise the one read before."""
        self._read()
        return self._policy

    def lead(self, engine: DecisionEngine) -> None:
        """Apply reloaded policies to this engine from now on."""
        with self._one_at_a_time:
            self._engine = engine
            if engine.settings.policy.digest != self._policy.digest:  # reloaded since the engine was created
                engine.change_policy(self._policy)

    def begin(self) -> None:
        """Read the files in a separate thread. Safe to call from a signal handler."""
        threading.Thread(target=self.run, name="policy", daemon=True).start()

    def run(self) -> None:
        """Read the files and apply them if valid. An operator requested it, so the log also says when nothing changed."""
        if not self._read():
            log.info("the current playbook files change nothing: policy %s stays in force", self._policy.digest)

    def _read(self) -> bool:
        """Read the files; return whether there was something to log."""
        with self._one_at_a_time:
            before = self._policy.digest
            try:
                policy = load_policy(self._config.playbook_paths, self._config.hooks)
                if policy.digest != before and self._engine is not None:
                    self._engine.change_policy(policy)
            except Exception as error:  # noqa: BLE001 - whatever it is, people must see that their files are not in force
                self.problem = str(error) if isinstance(error, PolicyError) else f"{type(error).__name__}: {error}"
                log.error("the playbooks are invalid, policy %s stays in force: %s", before, self.problem)
                return True
            self._policy, self.problem = policy, ""
            if policy.digest != before:
                log.info("policy %s is in force (before: %s)", policy.digest, before)
            return policy.digest != before
