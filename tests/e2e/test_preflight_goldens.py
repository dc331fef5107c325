"""The whole way of a golden digest: a node that passed teaches it, and it says which of two devices computes wrong."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from preflight.host.nvml_library import count_gpus
from preflight.kernels.golden_digests import SITE_VARIABLE

pytestmark = [pytest.mark.torch, pytest.mark.skipif(count_gpus() > 0, reason="there is a GPU")]
ARITHMETIC = ("run", "-o", "json", "--only", "matmul_repeat")


def preflight(goldens: Path, *words: str) -> tuple[int, str]:
    quiet = {"HEALTHD_NVML_LIBRARY": "", "CUDA_VISIBLE_DEVICES": "", SITE_VARIABLE: str(goldens)}
    done = subprocess.run(
        [sys.executable, "-m", "preflight", *words],
        stdout=subprocess.PIPE,
        text=True,
        timeout=100,
        check=False,
        env=os.environ | quiet,
    )
    return done.returncode, done.stdout


def outcomes(said: str) -> dict[str, Any]:
    return {result["device"]: result["outcome"] for result in json.loads(said)["results"]}


def test_of_two_that_differ_the_golden_of_an_earlier_pass_names_the_wrong_one(tmp_path: Path) -> None:
    goldens, passed = tmp_path / "goldens.json", tmp_path / "passed.json"
    code, said = preflight(goldens, *ARITHMETIC)
    assert (code, outcomes(said)) == (0, {"cpu:0": "pass", "cpu:1": "pass"})
    passed.write_text(said)
    assert (
        preflight(goldens, "goldens", "record", str(passed))[0] == 3
    )  # two are too few, unless somebody says otherwise
    assert not goldens.exists()
    assert preflight(goldens, "goldens", "record", str(passed), "--devices", "2")[0] == 0
    for _ in range(3):  # how many seeds both devices come to depends on how busy this machine is: teach more of them
        passed.write_text(preflight(goldens, *ARITHMETIC)[1])
        preflight(goldens, "goldens", "record", str(passed), "--devices", "2")

    code, said = preflight(goldens, *ARITHMETIC, "--inject", "matmul_repeat:one_device")
    assert (code, outcomes(said)) == (1, {"cpu:0": "pass", "cpu:1": "fail"})
    assert "the golden digests recorded" in json.loads(said)["reason"]
