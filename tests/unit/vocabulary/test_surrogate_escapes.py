from __future__ import annotations

import os

from hypothesis import given
from hypothesis import strategies as st

from healthd.trainer.beacons.beacon_page import BeaconError
from vocabulary.text.surrogate_escapes import escape_surrogates


@given(st.binary(max_size=20))
def test_any_file_name_becomes_text_that_says_its_bytes(name: bytes) -> None:
    escaped = escape_surrogates(os.fsdecode(name))
    assert escaped.encode().decode() == escaped
    assert escaped == name.decode(errors="backslashreplace")
    assert escape_surrogates(escaped) == escaped
    str(BeaconError(os.fsdecode(name), "field", "problem")).encode()


def test_half_a_surrogate_pair_becomes_its_number() -> None:
    assert escape_surrogates("a\ud800b") == "a\\ud800b"
