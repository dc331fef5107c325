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
        self._offered = engine.settings.policy.digest  # to the engine, last
        self._one_at_a_time = threading.Lock()

    def begin(self) -> None:
        """Read the files in a thread of its own. Callable from a signal handler."""
        threading.Thread(target=self.run, name="policy", daemon=True).start()

    def run(self) -> None:
        """Read the files; put them in force if they are good."""
        with self._one_at_a_time:
            try:
                policy = load_policy(self._config.playbook_paths, self._config.hooks)
                if policy.digest != self._offered:
                    self._engine.change_policy(policy)
            except Exception as error:  # noqa: BLE001 - whatever it is, people must see that their files are not in force
                self.problem = str(error) if isinstance(error, PolicyError) else f"{type(error).__name__}: {error}"
                log.error("the playbooks are not taken, policy %s stays in force: %s", self._offered, self.problem)
                return
            log.info("policy %s is in force (before: %s)", policy.digest, self._offered)
            self._offered, self.problem = policy.digest, ""
