"""A node without a centre: what the daemon calls in place of `ServiceThreads`. It starts no thread and reports to nobody."""

from __future__ import annotations


class StandaloneServices:
    """The same calls as `healthd.service_threads.ServiceThreads`."""

    heard_at: float | None = None

    def wake_uplink(self) -> None:
        """There is nobody to report to."""

    def look_after_urgent(self) -> None:
        """No report is under way."""

    def start(self) -> None:
        """There is no thread to start."""

    def stop(self) -> None:
        """There is no thread to end."""
