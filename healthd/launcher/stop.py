"""What ends a job from outside: a signal to the launcher. It becomes the same order to all ranks: save and leave."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from types import FrameType, TracebackType

STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT)


class Stop:
    """Notes the signals while it is entered. A plain flag: an event's lock could be held when the handler runs."""

    def __init__(self, signals: Sequence[int] = STOP_SIGNALS) -> None:
        self._signals = signals
        self._got = 0
        self._previous: dict[int, object] = {}

    def asked(self) -> bool:
        """Whether the job shall end."""
        return self._got != 0

    @property
    def code(self) -> int:
        """The launcher's exit code: as a shell says that a signal ended it."""
        return 128 + self._got

    @property
    def why(self) -> str:
        """In words."""
        return f"signal {self._got}"

    def __enter__(self) -> Stop:  # noqa: PYI034 - Self is Python 3.11's
        self._previous = {number: signal.signal(number, self._note) for number in self._signals}
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)  # type: ignore[arg-type]  # it came from there

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._got = number
