from __future__ import annotations

from pathlib import Path

import pytest

from preflight.kernels import golden_digests
from preflight.kernels.golden_digests import AGREES, DIFFERS, UNKNOWN, compare_with_goldens, format_platform_name

LIBRARIES = {"torch": "2.11", "CUDA": "13.0"}
H200 = format_platform_name("NVIDIA H200", "sm_90", "132 SMs", LIBRARIES)
SLICE = format_platform_name("NVIDIA H200", "sm_90", "16 SMs", LIBRARIES)


def test_the_file_is_empty_to_begin_with() -> None:
    assert golden_digests.read_goldens() == {}


def test_a_platform_is_told_from_any_other() -> None:
    assert H200 == "NVIDIA H200, sm_90, 132 SMs, CUDA 13.0, torch 2.11"
    others = [
        format_platform_name("NVIDIA H100", "sm_90", "132 SMs", LIBRARIES),
        format_platform_name("NVIDIA H200", "sm_90", "132 SMs", {}),
    ]
    assert len({H200, SLICE, *others}) == 4


def test_what_is_not_stored_says_nothing() -> None:
    known = {H200: {"bf16 8192": "aa"}}
    assert compare_with_goldens(known, H200, "bf16 8192", "aa") == AGREES
    assert compare_with_goldens(known, H200, "bf16 8192", "ab") == DIFFERS
    assert compare_with_goldens(known, H200, "bf16 4096", "aa") == UNKNOWN
    assert compare_with_goldens(known, SLICE, "bf16 8192", "ab") == UNKNOWN


def test_what_is_written_is_read_again_and_a_site_has_the_last_word(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site, own = tmp_path / "a" / "goldens.json", {H200: {"bf16 8192": "aa"}}
    monkeypatch.setenv(golden_digests.SITE_VARIABLE, str(site))
    assert golden_digests.load_all_goldens() == ({}, "")
    golden_digests.write_goldens(site, own)
    assert golden_digests.load_all_goldens() == (own, "")
    site.write_text("[")
    found, trouble = golden_digests.load_all_goldens()
    assert found == {}
    assert str(site) in trouble


@pytest.mark.parametrize("text", ["", "[]", '{"a": "b"}', '{"a": {"b": 1}}'])
def test_a_broken_file_is_named(text: str, tmp_path: Path) -> None:
    path = tmp_path / "goldens.json"
    path.write_text(text)
    with pytest.raises(ValueError, match=str(path)):
        golden_digests.read_goldens(path)
