from __future__ import annotations

from pathlib import Path

import pytest

from preflight.kernels import goldens
from preflight.kernels.goldens import AGREES, DIFFERS, UNKNOWN, platform_name, verdict

LIBRARIES = {"torch": "2.11", "CUDA": "13.0"}
H200 = platform_name("NVIDIA H200", "sm_90", "132 SMs", LIBRARIES)
SLICE = platform_name("NVIDIA H200", "sm_90", "16 SMs", LIBRARIES)


def test_the_file_is_empty_to_begin_with() -> None:
    assert goldens.read() == {}


def test_a_platform_is_told_from_any_other() -> None:
    assert H200 == "NVIDIA H200, sm_90, 132 SMs, CUDA 13.0, torch 2.11"
    others = [
        platform_name("NVIDIA H100", "sm_90", "132 SMs", LIBRARIES),
        platform_name("NVIDIA H200", "sm_90", "132 SMs", {}),
    ]
    assert len({H200, SLICE, *others}) == 4


def test_what_is_not_stored_says_nothing() -> None:
    known = {H200: {"bf16 8192": "aa"}}
    assert verdict(known, H200, "bf16 8192", "aa") == AGREES
    assert verdict(known, H200, "bf16 8192", "ab") == DIFFERS
    assert verdict(known, H200, "bf16 4096", "aa") == UNKNOWN
    assert verdict(known, SLICE, "bf16 8192", "ab") == UNKNOWN


def test_what_is_written_is_read_again_and_a_site_has_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, own = tmp_path / "a" / "goldens.json", {H200: {"bf16 8192": "aa"}}
    monkeypatch.setenv(goldens.SITE_VARIABLE, str(site))
    assert goldens.stored() == ({}, "")
    goldens.write(site, own)
    assert goldens.stored() == (own, "")
    site.write_text("[")
    found, trouble = goldens.stored()
    assert found == {}
    assert str(site) in trouble


@pytest.mark.parametrize("text", ["", "[]", '{"a": "b"}', '{"a": {"b": 1}}'])
def test_a_broken_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "goldens.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=str(path)):
        goldens.read(path)
