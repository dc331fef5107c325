"""Read the playbooks again while running (SIGHUP). What cannot be used never replaces what is in force, and is shown."""

from __future__ import annotations

import logging
import threading

from remediator.config import Config
from remediator.engine import Engine
from remediator.playbook.errors import PolicyError
from remediator.playbook.load import load_policy

log = logging.getLogger(__name__)


class PolicyReload:
    """Swaps the policy as a whole, or leaves it; `problem` says why the files as they are now are not in force."""

    def __init__(self, config: Config, engine: Engine) -> None:
        self.problem = ""
        self._config = config
        self._engine = engine
        self._one_at_a_time = threading.Lock()

    def begin(self) -> None:
        """Read the files in a thread of its own. Callable from a signal handler."""
        threading.Thread(target=self.run, name="policy", daemon=True).start()

    def run(self) -> None:
        """Read the files; put them in force if they are good."""
        with self._one_at_a_time:
            before = self._engine.settings.policy
            try:
                policy = load_policy(self._config.playbook_paths, self._config.hooks)
            except PolicyError as error:
                self.problem = str(error)
                log.error("the playbooks are not taken, policy %s stays in force: %s", before.digest, error)
                return
            self.problem = ""
            if policy.digest != before.digest:
                self._engine.change_policy(policy)
            log.info("policy %s is in force (before: %s)", policy.digest, before.digest)
