"""Which records of the kernel log count as evidence about this node. Pure."""

from __future__ import annotations

from typing import NamedTuple

from healthd.samples.kernel_record import KernelRecord
from vocabulary.driver_log.injected_line import MARK, parse_injected_line


class RecordAttribution(NamedTuple):
    """The text of a record, and whether it is a test."""

    text: str
    injected: bool


class RecordAuthenticator:
    """Only the kernel (facility 0) is an evidence source.

    A process may inject a fault by marking it as such, if the configuration allows it, and only for the node it names.
    """

    def __init__(self, node: str, *, accept_injected: bool) -> None:
        self._node = node
        self._accept_injected = accept_injected

    def hear(self, record: KernelRecord) -> RecordAttribution | None:
        """Return the record's text; None if it does not count here."""
        text = record.text
        # The kernel repeats names that users choose: a mark inside its own record must not hide that record.
        may_be_marked = text.startswith(MARK) if record.facility == 0 else MARK in text
        if may_be_marked and (marked := parse_injected_line(text)) is not None:
            believed = self._accept_injected and marked.node == self._node
            return RecordAttribution(marked.text, injected=True) if believed else None
        return RecordAttribution(text, injected=False) if record.facility == 0 else None
