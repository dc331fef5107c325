"""The node's configuration: one YAML file, read once and validated as a whole.

`docs/reference/configuration.md`, which describes every key, is generated from this file.
"""

from __future__ import annotations

import enum
import re
import socket
import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec

from vocabulary.identity import require_node_name
from vocabulary.messages.message_bounds import TTL_S_MAX
from vocabulary.order import OrderKind
from vocabulary.text.yaml_text import YamlTextError, read_yaml

TTL_INTERVALS = 3.0  # missed reports before the node counts as unknown
Positive = Annotated[float, msgspec.Meta(gt=0)]
ReportInterval = Annotated[float, msgspec.Meta(ge=0.1, le=TTL_S_MAX / TTL_INTERVALS)]
Argv = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class ConfigError(ValueError):
    """A configuration that cannot be used. The text names the file, the key, and the nearest valid spelling."""


class _Section(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    pass


class LogSource(str, enum.Enum):
    """The transport that reads the kernel log."""

    AUTO = "auto"  # `path`; the journal if `path` is a device that cannot be opened
    KMSG = "kmsg"
    JOURNAL = "journal"
    FILE = "file"


class KernelLogConfig(_Section, frozen=True):
    """Where the kernel log is, and how it is read."""

    source: LogSource = LogSource.AUTO  # `auto`: `path` by its file type; the journal if it cannot be opened

    path: Path = Path("/dev/kmsg")  # a character device is read as kmsg, a plain file is followed

    # Whether lines of a plain file count without a second evidence source. True only if no user of the node can write
    # to it; through a syslog daemon, users can.
    trust_file: bool = False


class NvmlConfig(_Section, frozen=True):
    """The driver's library, the sweep interval, and the limit for one sweep."""

    library: Path | None = None  # path of the NVML library; none: pynvml finds it
    interval_s: Positive = 1.0  # between two sweeps
    deadline_s: Positive = 5.0  # a sweep that takes longer is a hang


class GpusConfig(_Section, frozen=True):
    """How many GPUs this node should have."""

    # fewer are a fault, and GPUs beyond them may be unbound; none: see `gpu_count` in the thresholds
    expected: Annotated[int, msgspec.Meta(ge=0, le=1024)] | None = None


class NatsConfig(_Section, frozen=True):
    """NATS between this node and the controller, for large sites. Needs the extra `nats`."""

    servers: Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]  # `nats://HOST:PORT` or `tls://HOST:PORT`
    cluster: str = "default"  # as in the configuration of `remediator ingest`
    ca_file: Path | None = None  # CA of the servers' certificates; none: the system's CAs
    certificate: Path | None = None  # this node's client certificate
    certificate_key: Path | None = None  # key of `certificate`

    def __post_init__(self) -> None:
        wrong = next((url for url in self.servers if not url.startswith(("nats://", "tls://"))), None)
        if wrong is not None:
            raise ValueError(f"servers: {wrong!r} must begin with nats:// or tls://")
        if not self.cluster:
            raise ValueError("cluster: is empty")
        if (self.certificate is None) != (self.certificate_key is None):
            raise ValueError("certificate and certificate_key belong together")


class RemediatorConfig(_Section, frozen=True):
    """The controller. Without a URL the node works alone."""

    url: str = ""  # `http://` or `https://`; none: the node works alone
    token_file: Path | None = None  # read for each request
    enrol_token_file: Path | None = None  # join secret, used once to obtain the missing `token_file`
    ca_file: Path | None = None  # CA of the controller's certificate; None: the system's CAs
    certificate: Path | None = None  # this node's client certificate
    certificate_key: Path | None = None  # key of `certificate`
    nats: NatsConfig | None = None  # none: HTTP for everything; with it, the URL is still needed
    report_interval_s: ReportInterval = 10.0  # interval of full reports; a change is reported at once

    def __post_init__(self) -> None:
        if self.url and not self.url.startswith(("http://", "https://")):
            raise ValueError(f"url: {self.url!r} must begin with http:// or https://")
        if self.url and self.token_file is None:
            raise ValueError(
                "token_file: needed with url; 'healthctl enroll' gets one, or an admin makes it: 'healthctl token issue --node NAME'"
            )
        if (self.certificate is None) != (self.certificate_key is None):
            raise ValueError("certificate and certificate_key belong together")
        if self.nats is not None and not self.url:
            raise ValueError("url: needed with nats, for enrolment, evidence and urgent reports")


class OrdersConfig(_Section, frozen=True):
    """The orders that this node accepts, and the programs that perform them."""

    allow: frozenset[OrderKind] = frozenset(OrderKind)  # the node rejects all others
    reset_gpu_command: Argv = ("nvidia-smi", "--gpu-reset", "-i", "{gpu}")  # `{gpu}` becomes the index
    reboot_command: Argv = ("systemctl", "reboot")  # done when the node runs under another boot id
    # `{level}` becomes gate, standard or burn-in
    preflight_command: Argv = (sys.executable, "-m", "preflight", "run", "--level", "{level}", "-o", "json")


class SourceConfig(_Section, frozen=True):
    """One source of the source child: whether and how often it is read, and its own options."""

    enabled: bool = True  # whether it is read
    every_s: Positive | None = None  # none: the source's default
    # the source's options: `infiniband.expected`, `services.units`, `fabric_manager.path`, `nccl_ras.address`, `dcgm.exporter`,
    # `dcgm.profile`
    options: dict[str, tuple[str, ...]] = {}


class ExporterConfig(_Section, frozen=True):
    """Extra metrics: the GPUs' values under dcgm-exporter's names."""

    dcgm_names: bool = False  # for existing dashboards


class Config(_Section, frozen=True):
    """The whole configuration of healthd."""

    node: str = msgspec.field(default_factory=socket.gethostname)  # this node's name
    state_dir: Path = Path("/var/lib/gpu-healthd")  # outbox and orders
    run_dir: Path = Path("/run/gpu-healthd")  # where `healthd.sock` is
    # where trainers publish their pages
    beacon_dir: Path = Path("/dev/shm/gpu-healthd")  # noqa: S108 - its owner and mode are checked
    listen: str = "127.0.0.1:15190"  # HOST:PORT of metrics, verdict, findings, sources; port 0: any
    accept_injected: bool = False  # whether marked test faults count
    kernel_log: KernelLogConfig = KernelLogConfig()
    nvml: NvmlConfig = NvmlConfig()
    gpus: GpusConfig = GpusConfig()
    remediator: RemediatorConfig = RemediatorConfig()
    orders: OrdersConfig = OrdersConfig()
    exporter: ExporterConfig = ExporterConfig()
    sources: dict[str, SourceConfig] = {}  # by name; `healthctl doctor` lists them
    source_deadline_s: Positive = 20.0  # limit for one reading of one source; longer is a hang
    thresholds: dict[str, Any] = {}  # overrides of healthd/thresholds.yaml, and `skus` for some products

    def __post_init__(self) -> None:
        require_node_name(self.node)
        host, port = self.listen_address
        if not host or not 0 <= port <= 65535:
            raise ValueError(f"listen: {self.listen!r} is not HOST:PORT")

    @property
    def listen_address(self) -> tuple[str, int]:
        """`listen` as a socket address. Port 0 lets the system choose."""
        host, _, port = self.listen.rpartition(":")
        return host.strip("[]"), int(port) if port.isdecimal() else -1


def load_node_config(path: Path, node: str | None = None) -> Config:
    """Read and validate a configuration file; `node` overrides the file's node name.

    Raises:
        ConfigError: it cannot be read, is not YAML, or holds an invalid key or value.
    """
    try:
        text = path.read_bytes()
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from error
    config = parse_node_config(text, str(path))
    try:
        return msgspec.structs.replace(config, node=require_node_name(node)) if node else config
    except ValueError as error:
        raise ConfigError(f"--node: {error}") from error


def parse_node_config(text: str | bytes, name: str) -> Config:
    """Validate the text of a configuration file; `name` is the file's name in messages.

    Raises:
        ConfigError: it is not YAML, or holds an invalid key or value.
    """
    try:
        document = read_yaml(text)
    except YamlTextError as error:
        raise ConfigError(f"{name}: {error}") from error
    try:
        return msgspec.convert({} if document is None else document, Config, dec_hook=_decode_path)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{name}: {_explain_problem(str(error))}") from error


def _decode_path(kind: type, value: Any) -> Any:
    """Decode paths, which msgspec does not know."""
    if kind is Path and isinstance(value, str) and value:
        return Path(value)
    raise ValueError(f"expected a path, got {value!r}")


_WHERE = re.compile(r" - at `\$\.?(?P<where>.*)`$")
_WORD = re.compile(r"unknown field `(?P<key>[^`]*)`|enum value '(?P<value>[^']*)'")


def _explain_problem(problem: str) -> str:
    """Reword msgspec's message: the key first, the nearest valid spelling last."""
    where = _WHERE.search(problem)
    place = where["where"] if where else ""
    sentence = problem[: where.start()] if where else problem
    word = _WORD.search(sentence)
    if word is None:
        return f"{place}: {sentence}" if place else sentence
    if word["key"] is not None:
        valid = _list_keys(place)
        key = f"{place}.{word['key']}" if place else word["key"]
        return f"{key}: no such key; {_suggest_key(word['key'], valid)}"
    words: type[enum.Enum] = LogSource if place == "kernel_log.source" else OrderKind
    return f"{place}: {word['value']!r} is not valid; {_suggest_key(word['value'], [each.value for each in words])}"


def _list_keys(place: str) -> list[str]:
    section = Config() if not place else getattr(Config(), place, None)
    return list(section.__struct_fields__) if isinstance(section, msgspec.Struct) else []


def _suggest_key(word: str, valid: list[str]) -> str:
    import difflib  # noqa: PLC0415 - only for those who mistyped

    close = difflib.get_close_matches(word, valid, n=1)
    return f"did you mean {close[0]!r}?" if close else f"valid are {', '.join(sorted(valid))}"
