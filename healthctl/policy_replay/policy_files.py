"""Loads playbooks given on the command line, and the remediator's own; errors in them are usage errors."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from healthctl.exit_codes import Exit, Failure

if TYPE_CHECKING:
    from remediator.config import Config
    from remediator.decisions.decision_settings import DecisionSettings
    from remediator.decisions.policy import Policy

REMEDIATOR_CONFIG = Path("/etc/gpu-healthd/remediator.yaml")


def load_policy_files(files: Sequence[Path | None]) -> Policy:
    """Load the policy of these files; the shipped one if empty or None. A Failure names file, line and error."""
    from remediator.playbook.playbook_errors import PolicyError
    from remediator.playbook.playbook_loader import SHIPPED, load_policy

    try:
        return load_policy([file or SHIPPED for file in files] or [SHIPPED])
    except PolicyError as error:
        raise Failure(str(error), Exit.USAGE) from None


def load_remediator_config(path: Path, *, needed: bool) -> Config:
    """Load the remediator's configuration; defaults if the file is missing and not `needed`."""
    from remediator.config import Config, ConfigError, load_config

    if not needed and not path.exists():
        return Config()
    try:
        return load_config(path)
    except ConfigError as error:
        todo = (
            ""
            if path.exists()
            else "; run this on the controller's machine, and use --config to name its configuration"
        )
        raise Failure(f"{error}{todo}", Exit.USAGE) from None


def build_settings(config: Config, policy: Policy) -> DecisionSettings:
    """The decision settings of this configuration and policy, with all automation allowed; the record contains its own mode."""
    from remediator.decisions.decision_settings import DecisionSettings
    from remediator.model.plan_steps import Mode

    return DecisionSettings(policy, Mode.ACT, config.budget, config.probation_s, config.silence, config.again_after_s)
