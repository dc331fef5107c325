"""The playbooks in force, read at start, when a term begins, and at SIGHUP. What cannot be used replaces nothing, and is shown."""

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
    """Swaps the policy as a whole, or leaves it; `problem` says why the files as they are now are not in force.

    While this process stands by, what it read last is what it will begin to lead with.
    """

    def __init__(self, config: Config) -> None:
        """Read the files.

        Raises:
            PolicyError: they cannot be used; there is nothing to begin with.
        """
        self.problem = ""
        self._config = config
        self._policy = load_policy(config.playbook_paths, config.hooks)
        self._engine: DecisionEngine | None = None
        self._one_at_a_time = threading.Lock()

    def current(self) -> Policy:
        """What is good of the files as they are now: they themselves, or what was read before."""
        self._read()
        return self._policy

    def lead(self, engine: DecisionEngine) -> None:
        """From now on put in force there what is read."""
        with self._one_at_a_time:
            self._engine = engine
            if engine.settings.policy.digest != self._policy.digest:  # read since the engine was made
                engine.change_policy(self._policy)

    def begin(self) -> None:
        """Read the files in a thread of its own. Callable from a signal handler."""
        threading.Thread(target=self.run, name="policy", daemon=True).start()

    def run(self) -> None:
        """Read the files; put them in force if they are good. Asked for by people: they hear also that nothing changed."""
        if not self._read():
            log.info("the playbooks as they are now change nothing: policy %s stays in force", self._policy.digest)

    def _read(self) -> bool:
        """Whether there was something to say of the files."""
        with self._one_at_a_time:
            before = self._policy.digest
            try:
                policy = load_policy(self._config.playbook_paths, self._config.hooks)
                if policy.digest != before and self._engine is not None:
                    self._engine.change_policy(policy)
            except Exception as error:  # noqa: BLE001 - whatever it is, people must see that their files are not in force
                self.problem = str(error) if isinstance(error, PolicyError) else f"{type(error).__name__}: {error}"
                log.error("the playbooks are not taken, policy %s stays in force: %s", before, self.problem)
                return True
            self._policy, self.problem = policy, ""
            if policy.digest != before:
                log.info("policy %s is in force (before: %s)", policy.digest, before)
            return policy.digest != before
