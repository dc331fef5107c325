"""healthd's configuration: a careless hand, not a hostile one, but never a traceback."""

from __future__ import annotations

from healthd.config import ConfigError, parse_node_config
from tests.fuzz.target import Target, text

TRAPS = (  # what YAML makes of these ended in a traceback
    b"node: 2001-99-99\n",
    b"x: 0x_\n",
    b"x: 0b_\n",
    b"[" * 400,
    b"x: !!binary '%'\n",
    b"x: !!timestamp '1'\n",
    b"a: &a [*a]\n",
    b"? {a: b}\n: c\n",
)


def judge(data: bytes) -> None:
    """A configuration or its own error."""
    try:
        parse_node_config(text(data), "healthd.yaml")
    except ConfigError:
        return


TARGET = Target(
    judge,
    (
        b"node: n1\nlisten: 127.0.0.1:9\nremediator: {url: 'https://c', token_file: /t}\norders: {allow: [abort]}\n",
        b"thresholds: {temperature: {margin_c: 5}}\naccept_injected: yes\n",
        *TRAPS,
    ),
    bytes_max=500,
)
