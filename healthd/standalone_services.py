"""A node without a controller: replaces `ServiceThreads`. Starts no thread and reports nothing."""

from __future__ import annotations


class StandaloneServices:
    """The same interface as `healthd.service_threads.ServiceThreads`."""

    heard_at: float | None = None

    def wake_uplink(self) -> None:
        """Do nothing: there is no uplink."""

    def look_after_urgent(self) -> None:
        """Do nothing: no report is in progress."""

    def start(self) -> None:
        """Do nothing: there is no thread."""

    def stop(self) -> None:
        """Do nothing: there is no thread."""
