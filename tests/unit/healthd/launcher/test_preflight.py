from __future__ import annotations

import json
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.launcher.decisions.relaunch_policy import Fitness
from healthd.launcher.preflight import make_preflight_command, parse_preflight_verdict, run_preflight
from preflight.results import Verdict

FIT, UNKNOWN, UNFIT = Fitness.FIT, Fitness.UNKNOWN, Fitness.UNFIT


@pytest.mark.parametrize(
    ("verdict", "fitness"),
    [
        (Verdict.PASS, FIT),
        (Verdict.FAIL, UNFIT),
        (Verdict.INCONCLUSIVE, UNKNOWN),
        (Verdict.MISCONFIGURED, UNKNOWN),
    ],
)
def test_only_a_fail_condemns_and_only_a_pass_is_fit(verdict: Verdict, fitness: Fitness) -> None:
    said = parse_preflight_verdict(
        "n1", json.dumps({"verdict": verdict.value, "reason": ""}).encode(), verdict.exit_code
    )

    assert said.fitness is fitness
    assert bool(said.reason) == (fitness is not FIT)


@given(st.binary() | st.sampled_from([b'{"verdict": "pass"}', b'{"verdict": "fail"}', b"[1]", b'{"verdict": []}']), st.integers(-15, 255))  # fmt: skip
def test_a_document_and_a_code_that_disagree_say_nothing(said: bytes, code: int) -> None:
    fitness = parse_preflight_verdict("n1", said, code).fitness

    assert (fitness is FIT) == (said == b'{"verdict": "pass"}' and code == 0)
    assert (fitness is UNFIT) == (said == b'{"verdict": "fail"}' and code == 1)


def test_what_hangs_is_ended_and_what_cannot_start_is_said() -> None:
    assert run_preflight("n1", ["sleep", "300"], 0.1, lambda: False) == (
        "n1",
        UNKNOWN,
        "the preflight did not end within 0.1 s",
    )
    assert run_preflight("n1", ["sleep", "300"], 300.0, lambda: True).fitness is UNKNOWN
    assert "cannot be started" in run_preflight("n1", ["absent-and-false"], 1.0, lambda: False).reason


def test_what_a_preflight_complains_of_is_the_reason() -> None:
    said = run_preflight(
        "n1", ["sh", "-c", "echo progress >&2; echo 'Error: no such level' >&2; exit 2"], 9.0, lambda: False
    )

    assert said.reason == "the preflight ended with 2 and printed nothing readable: Error: no such level"


def test_the_program_prints_one_line_for_its_node() -> None:
    argv = [sys.executable, "-m", "healthd.launcher.preflight", "9", "sh", "-c", "echo $HEALTHD_NODE"]

    done = subprocess.run(argv, capture_output=True, text=True, check=True, env={"HEALTHD_NODE": "n1", "PATH": "/bin:/usr/bin"})  # fmt: skip

    assert json.loads(done.stdout)["node"] == "n1"
    assert make_preflight_command("gate")[1:] == ("-m", "preflight", "run", "--level", "gate", "-o", "json")
