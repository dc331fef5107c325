from __future__ import annotations

from pathlib import Path

import pytest

from preflight.kernels import goldens
from preflight.kernels.goldens import AGREES, DIFFERS, UNKNOWN, platform, verdict, with_digest

LIBRARIES = {"torch": "2.11", "CUDA": "13.0"}
H200 = platform("NVIDIA H200", "sm_90", "132 SMs", LIBRARIES)
SLICE = platform("NVIDIA H200", "sm_90", "16 SMs", LIBRARIES)


def test_the_file_is_empty_to_begin_with() -> None:
    assert goldens.read() == {}


def test_a_platform_is_told_from_any_other() -> None:
    assert H200 == "NVIDIA H200, sm_90, 132 SMs, CUDA 13.0, torch 2.11"
    others = [platform("NVIDIA H100", "sm_90", "132 SMs", LIBRARIES), platform("NVIDIA H200", "sm_90", "132 SMs", {})]
    assert len({H200, SLICE, *others}) == 4


def test_what_is_not_stored_says_nothing() -> None:
    known = with_digest({}, H200, "bf16 8192", "aa")
    assert verdict(known, H200, "bf16 8192", "aa") == AGREES
    assert verdict(known, H200, "bf16 8192", "ab") == DIFFERS
    assert verdict(known, H200, "bf16 4096", "aa") == UNKNOWN
    assert verdict(known, SLICE, "bf16 8192", "ab") == UNKNOWN


def test_a_stored_digest_is_not_replaced() -> None:
    known = with_digest({}, H200, "bf16 8192", "aa")
    assert with_digest(known, H200, "bf16 8192", "aa") == known
    with pytest.raises(ValueError, match="find out which card is wrong"):
        with_digest(known, H200, "bf16 8192", "ab")


@pytest.mark.parametrize("text", ["", "[]", '{"a": "b"}', '{"a": {"b": 1}}'])
def test_a_broken_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "goldens.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=str(path)):
        goldens.read(path)
