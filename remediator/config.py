"""The remediator's configuration: one YAML file, checked whole before anything starts."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated

import msgspec

from remediator.config_suggestions import explain_config_error
from remediator.decisions.decision_settings import SilenceLimits
from remediator.decisions.isolation_budget import IsolationBudget
from remediator.detection.failure_hazard import NODE_MTBF_H
from remediator.fleet.topology_file import TopologyError, load_topology
from remediator.model.finding_settlement import COUNTS_S
from remediator.model.plan_steps import Mode
from remediator.notifications.action_dispatcher import SiteHook
from remediator.notifications.alert_settings import AlertSettings
from remediator.playbook.playbook_loader import SHIPPED
from remediator.schedulers.kubernetes.kubernetes_options import KubernetesOptions
from remediator.schedulers.slurm.slurm_options import SlurmOptions
from remediator.server_config import AccessLimits, TlsSettings, WebSettings, is_loopback
from remediator.store.retention import RetentionSettings
from vocabulary.text.yaml_text import YamlTextError, read_yaml

PORT_MAX = 65535


class ConfigError(ValueError):
    """A configuration error: the file, the key, what is wrong and what is valid."""


class SchedulerConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which scheduler holds nodes, and how often it is polled, when idle and while a plan runs."""

    kind: str = "local"  # `local`, `slurm`, `kubernetes`
    state_file: str = "/var/lib/gpu-healthd/holds.json"  # file of the local backend
    slurm: SlurmOptions = SlurmOptions()
    kubernetes: KubernetesOptions = KubernetesOptions()
    poll_s: Annotated[float, msgspec.Meta(gt=0)] = 5.0  # poll interval for all nodes
    poll_busy_s: Annotated[float, msgspec.Meta(gt=0)] = 0.5  # poll interval for nodes with a running plan


class Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Configuration of `remediator serve`. Every key has a default that works on one machine."""

    cluster: str = "default"  # cluster name in messages and metrics
    listen: str = "127.0.0.1:15180"  # HOST:PORT of the API, the pages and metrics
    database: str = "sqlite:////var/lib/gpu-healthd/remediator.db"  # or `postgresql://USER@HOST/NAME`
    playbooks: tuple[str, ...] = ()  # empty: the shipped default
    mode: Mode = Mode.RECOMMEND  # how far automation may go
    budget: IsolationBudget = IsolationBudget()
    silence: SilenceLimits = SilenceLimits()
    topology: str = ""  # file that maps nodes to racks and switches
    probation_s: Annotated[float, msgspec.Meta(ge=0)] = 86400.0  # probation of a node that returned to service
    again_after_s: Annotated[float, msgspec.Meta(ge=0)] = (
        COUNTS_S  # a fatal fault seen this long after an operator settled it is decided again
    )
    node_mtbf_h: Annotated[float, msgspec.Meta(gt=0)] = (
        NODE_MTBF_H  # of a typical node; jobs derive their checkpoint interval from it
    )
    analysis_processes: Annotated[int, msgspec.Meta(ge=0, le=64)] | None = (
        None  # processes that look for stragglers and hangs; none: the controller itself, from 500 nodes on one process
    )
    scheduler: SchedulerConfig = SchedulerConfig()
    alerts: AlertSettings = AlertSettings()
    hooks: dict[str, SiteHook] = {}  # programs that playbooks may start, by name
    retention: RetentionSettings = RetentionSettings()
    limits: AccessLimits = AccessLimits()
    web: WebSettings = WebSettings()
    tls: TlsSettings | None = None  # none: plain HTTP
    insecure: bool = False  # allow plain HTTP beyond this machine

    @property
    def playbook_paths(self) -> list[Path]:
        """The playbook files in use."""
        if self.playbooks:
            return [Path(p) for p in self.playbooks]
        return [SHIPPED]

    @property
    def address(self) -> tuple[str, int]:
        """Host and port to listen on."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port)


def load_config(path: Path) -> Config:
    """Read and check the file.

    Raises:
        ConfigError: the file cannot be read, is not a YAML mapping, or has a wrong key or value.
    """
    try:
        document = read_yaml(path.read_bytes())
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except YamlTextError as error:
        raise ConfigError(f"{path}: {error}") from error
    try:
        config = msgspec.convert({} if document is None else document, Config)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{path}: {explain_config_error(error, document, Config)}") from error
    if config.topology:
        try:
            load_topology(Path(config.topology))
        except TopologyError as error:
            raise ConfigError(f"{path}: topology: {error}") from error
    if config.scheduler.kind not in {"slurm", "kubernetes", "local"}:
        raise ConfigError(f"{path}: scheduler.kind is '{config.scheduler.kind}'; known: slurm, kubernetes, local")
    _check_slurm_conf(path, config.scheduler)
    if re.fullmatch(r".+:\d{1,5}", config.listen) is None:
        raise ConfigError(f"{path}: listen is '{config.listen}'; write HOST:PORT, e.g. 127.0.0.1:15180")
    if not 1 <= config.address[1] <= PORT_MAX:
        raise ConfigError(f"{path}: listen is '{config.listen}'; ports are 1 to {PORT_MAX}")
    if config.tls is None and not config.insecure and not is_loopback(config.address[0]):
        raise ConfigError(
            f"{path}: listen is '{config.listen}', where tokens would be sent in clear text; add 'tls: {{certificate: …, key: …}}', "
            "or set 'insecure: true' behind a TLS proxy"
        )
    return config


def _check_slurm_conf(path: Path, scheduler: SchedulerConfig) -> None:
    """Check the name early: at run time a wrong one looks like a slurmctld that is down."""
    conf = scheduler.slurm.conf
    if scheduler.kind != "slurm" or not conf:
        return
    try:
        with Path(conf).open("rb"):
            pass
    except OSError as error:
        raise ConfigError(
            f"{path}: scheduler.slurm.conf: {conf} cannot be read ({error.strerror}); name the slurm.conf of this machine, "
            "or omit it to use the installed one"
        ) from error
