"""The configuration of `remediator ingest`: one YAML file, checked whole before anything starts."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import msgspec

from remediator.config_suggestions import explain_config_error
from vocabulary.text.yaml_text import YamlTextError, read_yaml

Count = Annotated[int, msgspec.Meta(ge=1)]
Names = Annotated[tuple[str, ...], msgspec.Meta(min_length=1)]


class IngestConfigError(ValueError):
    """A configuration error: the file, the key, what is wrong and what is valid."""


class NatsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The NATS servers, this process' credentials there, and the bounds of the stream."""

    servers: Names  # `nats://HOST:PORT` or `tls://HOST:PORT`
    password_file: str  # file with the password of `user`; `remediator nats-config` makes it
    issuer_file: str  # file with the key that signs what nodes may do; `remediator nats-config` makes it
    user: str = "ingest"  # this process' user, which the server's file names
    account: str = "$G"  # the account of all nodes
    ca_file: str = ""  # CA of the servers' certificates; empty: the system's
    certificate: str = ""  # client certificate
    certificate_key: str = ""  # key of `certificate`
    replicas: Annotated[int, msgspec.Meta(ge=1, le=5)] = 1  # of the stream; 3 in a cluster of servers
    stream_bytes: Count = 2 << 30  # limit of the stream on disk; beyond it nodes retry
    stream_age_s: Annotated[float, msgspec.Meta(ge=60)] = 600.0  # older messages are dropped; nodes sent newer ones

    def __post_init__(self) -> None:
        if bool(self.certificate) != bool(self.certificate_key):
            raise ValueError("certificate and certificate_key belong together")


class IngestConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Configuration of `remediator ingest`."""

    controllers: Names  # URLs of all replicas; the leader is found among them
    token_file: str  # token of `remediator token issue --ingest NAME`
    nats: NatsSettings
    cluster: str = "default"  # name in the subjects; the same as in healthd's `remediator.nats.cluster`
    ca_file: str = ""  # CA of the controllers' certificates; empty: the system's
    workers: Annotated[int, msgspec.Meta(ge=1, le=64)] = 4  # batches under way at once


def load_ingest_config(path: Path) -> IngestConfig:
    """Read and check the file.

    Raises:
        IngestConfigError: it cannot be read, or has a wrong key or value.
    """
    try:
        document = read_yaml(path.read_bytes())
        return msgspec.convert({} if document is None else document, IngestConfig)
    except OSError as error:
        raise IngestConfigError(f"{path}: cannot be read ({error.strerror})") from error
    except YamlTextError as error:
        raise IngestConfigError(f"{path}: {error}") from error
    except msgspec.ValidationError as error:
        raise IngestConfigError(f"{path}: {explain_config_error(error, document, IngestConfig)}") from error
