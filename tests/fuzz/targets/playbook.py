"""Policy files, which may include others."""

from __future__ import annotations

from remediator.playbook.playbook_errors import PolicyError
from remediator.playbook.playbook_loader import load_policy
from tests.fuzz.target import Target, scratch
from tests.fuzz.targets.healthd_config import TRAPS

FILE = scratch() / "playbook.yaml"


def judge(data: bytes) -> None:
    """A policy or its own error, which says where."""
    FILE.write_bytes(data)
    try:
        load_policy([FILE])
    except PolicyError:
        return


TARGET = Target(
    judge,
    (
        b"version: 1\nrules:\n  - name: r\n    why: because\n    match: {check: xid}\n    steps: [cordon, {drain: {within_s: 60}}]\n",
        b"version: 1\ninclude: [shipped/default.yaml]\noverride: [{rule: nope, enabled: false}]\n",
        b"include: ['playbook.yaml', '../../../../etc/passwd', 'a\\0b']\nrules: []\n",
        b"a: &a [x]\nb: &b [*a, *a, *a]\nc: &c [*b, *b, *b]\nd: [*c, *c, *c]\n",
        *TRAPS,
    ),
    bytes_max=500,
)
