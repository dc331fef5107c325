"""Notices of an end, tried on processes of their own."""

from __future__ import annotations

import logging
import signal
import subprocess
import sys
import textwrap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.termination_notices import SIGNALS_VARIABLE, read_notice_seconds, read_notice_signals

DEADLINE_S = 90.0
TERM, USR1, USR2, XCPU = signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGXCPU


def end(code: str, **environ: str) -> tuple[int, str, str]:
    argv = [sys.executable, "-c", textwrap.dedent(SETUP) + textwrap.dedent(code)]
    done = subprocess.run(argv, capture_output=True, text=True, env=environ, timeout=DEADLINE_S, check=False)
    return done.returncode, done.stdout, done.stderr


SETUP = """
    import os, signal, time
    from healthd.trainer.guard import Guard
    from healthd.trainer.termination_notices import TerminationNotices
    from vocabulary.clock import SystemClock

    def tell(*names):
        for name in names:
            os.kill(os.getpid(), getattr(signal, name))
"""
TRAINS = """
    with Guard.from_env() as guard:
        tell({signals})
        for step in range(99):
            with guard.step(step) as s:
                if s.checkpoint_due:
                    s.saved("/ckpt")
"""


@pytest.mark.parametrize(
    ("named", "signals"),
    [
        ("", (TERM,)),
        ("USR2", (TERM, USR2)),
        ("SIGUSR1, xcpu", (TERM, USR1, XCPU)),
        ("TERM,USR2,USR2", (TERM, USR2)),
        ("KILL,STOP,SEGV,12,nonsense", (TERM,)),
    ],
)
def test_signals_are_chosen_by_name(
    named: str, signals: tuple[signal.Signals, ...], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING):
        assert read_notice_signals({SIGNALS_VARIABLE: named}) == signals
    assert len(caplog.records) == (5 if "KILL" in named else 0)


@given(st.text())
def test_no_words_break_the_choice(text: str) -> None:
    assert TERM in read_notice_signals({SIGNALS_VARIABLE: text})
    assert 0 <= read_notice_seconds({"HEALTHD_TERMINATION_SECONDS": text}, 25.0) <= 86400
    assert 0 <= read_notice_seconds({"HEALTHD_KILL_SECONDS": text}, 1800.0, "HEALTHD_KILL_SECONDS") <= 86400


@pytest.mark.parametrize("signals", ["'SIGUSR2'", "'SIGUSR2', 'SIGTERM'", "'SIGTERM', 'SIGUSR2'"])
def test_a_chosen_signal_makes_the_rank_save_and_leave(signals: str) -> None:
    assert end(TRAINS.format(signals=signals), HEALTHD_TERMINATION_SIGNALS="USR2")[0] == 91


def test_a_signal_nobody_chose_ends_the_rank() -> None:
    assert end(TRAINS.format(signals="'SIGUSR2'"))[0] == -USR2


def test_the_same_signal_twice_is_meant_and_ends_as_that_signal() -> None:
    assert end(TRAINS.format(signals="'SIGUSR2', 'SIGUSR2'"), HEALTHD_TERMINATION_SIGNALS="USR2")[0] == -USR2


def test_under_torchrun_a_repeated_signal_is_only_passed_on() -> None:
    assert end(TRAINS.format(signals="'SIGTERM', 'SIGTERM'"), TORCHELASTIC_RUN_ID="r")[0] == 91


def test_handlers_are_given_back_and_the_programs_own_stay() -> None:
    code, out, _ = end(
        """
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background job begins with it ignored
    signal.signal(signal.SIGUSR1, lambda *_: print("mine", flush=True))
    notices = TerminationNotices(SystemClock(), 5.0, {"HEALTHD_TERMINATION_SIGNALS": "INT,USR1,USR2"})
    tell("SIGUSR1", "SIGINT")
    print(notices.take().reason, notices.take())
    notices.restore()
    print(signal.getsignal(signal.SIGINT) is signal.default_int_handler, signal.getsignal(signal.SIGUSR2).name)
    """
    )

    assert (code, out) == (0, "mine\nSIGINT None\nTrue SIG_DFL\n")


def test_a_longer_warning_gives_the_ranks_longer() -> None:
    code, out, _ = end(
        """
    notices = TerminationNotices(SystemClock(), 5.0, {"HEALTHD_TERMINATION_SECONDS": "200"})
    tell("SIGTERM")
    print(notices.take().expires_at > time.time() + 100)
    """
    )

    assert (code, out) == (0, "True\n")
