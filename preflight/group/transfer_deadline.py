"""Runs a transfer with a deadline, in its own thread, which is abandoned if it never returns."""

from __future__ import annotations

import contextlib
import re
import threading
import time
from collections.abc import Callable
from typing import Any

from preflight.fault_localisation.localisation_records import Why
from preflight.group.group_records import RailMeasurement

WORDS_MAX = 200
ABORT_S = 3.0  # from the abort of a communicator to the return of its waiting call

_PLACE = re.compile(r"^\[[^\]]*\] ")

Work = Callable[[Callable[[Any], None]], RailMeasurement]


class DeadlineRunner:
    """Runs transfers one after the other. `stuck` is set if an aborted one did not return: then no more are started."""

    def __init__(self) -> None:
        self.stuck = False

    def run(self, rail: int | None, seconds: float, work: Work) -> RailMeasurement:
        """The result of `work`; a hang or an error is a result too. `work` hands over its communicator, to be aborted."""
        if self.stuck:
            return RailMeasurement(rail=rail, why=Why.NOT_RUN, words="an earlier transfer of this node never returned")
        answers: list[RailMeasurement] = []
        groups: list[Any] = []

        def target() -> None:
            try:
                answers.append(work(groups.append))
            except Exception as error:  # noqa: BLE001 - whatever a broken way throws is an answer
                answers.append(RailMeasurement(rail=rail, why=Why.ERROR, words=_summarise_error(error)))

        began = time.monotonic()
        thread = threading.Thread(target=target, name="transfer", daemon=True)
        thread.start()
        thread.join(seconds)
        if thread.is_alive():
            for group in groups:
                with contextlib.suppress(Exception):
                    threading.Thread(target=group.abort, daemon=True).start()
            thread.join(ABORT_S)
            self.stuck = thread.is_alive()
            return RailMeasurement(rail=rail, why=Why.HANG, words=f"did not end within {seconds:g} s")
        answer = (
            answers[0]
            if answers
            else RailMeasurement(rail=rail, why=Why.ERROR, words="the transfer ended without a result")
        )
        if answer.why is Why.ERROR and not answer.wrong_words and time.monotonic() - began >= 0.9 * seconds:
            return RailMeasurement(rail=rail, why=Why.HANG, words=answer.words)  # torch's own timeout was first
        return answer


def _summarise_error(error: Exception) -> str:
    """The first sentence of an error, without torch's source location."""
    text = " ".join(str(error).split())
    return _PLACE.sub("", text).partition(". ")[0][:WORDS_MAX] or type(error).__name__
