"""Triton compiles for a GPU without one: so the same kernels that ran here through numpy are known to be accepted."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("triton")
ROOT = Path(__file__).parents[4]


@pytest.fixture(scope="module")
def ptx() -> dict[str, str]:
    environment = {name: value for name, value in os.environ.items() if name != "TRITON_INTERPRET"}
    done = subprocess.run(
        [sys.executable, str(Path(__file__).with_name("compiled.py"))],
        env={**environment, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_every_kernel_compiles_and_moves_two_words_at_a_time(ptx: dict[str, str]) -> None:
    assert {name.rpartition(" ")[2] for name in ptx if name.startswith("product")} == {"80", "90", "100"}
    for name, text in ptx.items():
        if name.startswith(("verify", "digest")):
            assert "ld.global.v2.b64" in text, name
        if name.startswith(("write", "verify and write")):
            assert "st.global.v2.b64" in text, name


def test_our_product_uses_the_tensor_cores_and_asks_for_its_sm(ptx: dict[str, str]) -> None:
    for architecture, instruction in (("80", "mma.sync"), ("90", "wgmma.mma_async"), ("100", "tcgen05.mma")):
        assert instruction in ptx[f"product {architecture}"]
        assert "%smid" in ptx[f"product {architecture}"]
