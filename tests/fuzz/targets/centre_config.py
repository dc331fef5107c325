"""The controller's configuration."""

from __future__ import annotations

from remediator.config import ConfigError, load_config
from tests.fuzz.target import Target, scratch
from tests.fuzz.targets.healthd_config import TRAPS

FILE = scratch() / "remediator.yaml"


def judge(data: bytes) -> None:
    """A configuration or its own error."""
    FILE.write_bytes(data)
    try:
        load_config(FILE)
    except ConfigError:
        return


TARGET = Target(
    judge,
    (
        b"listen: 127.0.0.1:15180\ndatabase: sqlite:////tmp/r.db\nmode: act\nscheduler: {kind: local, state_file: /tmp/h}\n",
        b"listen: 0.0.0.0:1\ntls: {certificate: a, key: b}\nweb: {proxy: {addresses: [10.0.0.5], roles: {viewer: ['*']}}}\n",
        b"limits: {node_per_s: -1}\nwebhooks: [{kind: slack, url: 'http://169.254.169.254/'}]\n",
        *TRAPS,
    ),
    bytes_max=500,
)
