"""Detects kernel records that may begin with text that a user chose, before any of them is taken at its word. Pure."""

from __future__ import annotations

import re

DOUBT_S = 3600.0  # a preempted task or a slow console may delay the second piece; nothing shows that it has come

# Records that may end before a name: of the OOM killer, and of a failed allocation, which begins with a task's name.
_BEFORE_A_NAME = re.compile(
    r"(?:oom-kill:constraint=|.{1,15}?: (?:page allocation failure: order:|vmalloc error: |page allocation stalls for )).*,cpuset=$",
    re.DOTALL,
)
# A netfilter packet log: it begins with its rule's prefix, which the rule's author chose
# (net/netfilter/nf_log_syslog.c).
_PACKET_LOG = re.compile(r"\bIN=\S{0,15} OUT=\S{0,15} (?:PHYSIN=|PHYSOUT=|MAC|SRC=|ARP|$)")


class SpoofableRecordDetector:
    """Detects records of facility 0 that may begin with text that a user chose.

    - The kernel prints ``,cpuset=`` and the name of a control group in two pieces (cpuset_print_current_mems_allowed).
      If another CPU prints between them, the name begins a record of its own, as a continuation. A delegated control
      group may have any name of 255 bytes. So for `DOUBT_S` after a record that ends before a name, no continuation
      record is taken at its word.
    - A packet log begins with the prefix of a firewall rule, also of a user's own network namespace where
      ``nf_log_all_netns`` is on.
    """

    def __init__(self) -> None:
        self._until = 0.0

    def may_begin_with_a_name(self, text: str, facility: int, at: float, *, continuation: bool) -> bool:
        """Return whether this record, written at `at` (seconds of one clock), may. Call for every record, in order."""
        doubtful = (continuation and at < self._until) or _PACKET_LOG.search(text) is not None
        if facility == 0 and text.endswith("cpuset=") and _BEFORE_A_NAME.match(text):
            self._until = at + DOUBT_S
        return doubtful
