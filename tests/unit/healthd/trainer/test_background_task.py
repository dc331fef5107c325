from __future__ import annotations

import threading

import pytest

from healthd.trainer.checkpoint_storage.background_task import BackgroundTask


def test_one_at_a_time_and_the_result_once() -> None:
    go, flight = threading.Event(), BackgroundTask[bool]("test")
    assert flight.wait() is None

    flight.start(go.wait)
    assert not flight.done
    with pytest.raises(RuntimeError, match="wait"):
        flight.start(go.wait)
    go.set()

    assert flight.wait() is True
    assert flight.wait() is None
    flight.close()


def test_what_went_wrong_is_told_once() -> None:
    def fail() -> None:
        raise OSError("disk")

    flight = BackgroundTask[None]("test")
    flight.start(fail)
    with pytest.raises(OSError, match="disk"):
        flight.wait()
    assert flight.wait() is None
    flight.close()


def test_another_thread_may_look_without_taking() -> None:
    go, flight = threading.Event(), BackgroundTask[bool]("test")
    assert flight.look(0.0) is None
    flight.start(go.wait)
    assert flight.look(0.01) is None
    go.set()
    assert flight.look(60.0) is True
    assert flight.wait() is True
    flight.close()
