"""Whatever stands in a configuration: data, or one error in a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vocabulary.text.yaml_text import BYTES_MAX, YamlTextError, read_yaml

LAUGHS = "\n".join(["l0: &l0 [x, x, x]", *(f"l{n}: &l{n} [{', '.join([f'*l{n - 1}'] * 9)}]" for n in range(1, 9))])


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (LAUGHS, "line 1: nested too deep, or repeated by aliases too often"),
        ("a: &a [*a]", "nested too deep"),
        ("[" * 2000, "nested too deep"),
        ("a: " + "[" * 50 + "]" * 50, "line 1: nested too deep"),
        ("at: 2001-99-99", "not YAML: month must be in 1..12"),
        ("x: 0x_", "not YAML: invalid literal"),
        ("x: !!python/object/apply:os.system [true]", "not YAML: could not determine a constructor"),
        ("a: b: c", "not YAML: mapping values are not allowed here"),
        (b"\xff\xfea", "not YAML"),
        ("a" * (BYTES_MAX + 1), "longer than 16 MiB"),
    ],
    ids=range(10),
)
def test_what_is_none_is_said_in_a_line(text: str | bytes, says: str) -> None:
    with pytest.raises(YamlTextError, match=says) as error:
        read_yaml(text)
    assert "\n" not in str(error.value)


def test_what_is_some_is_data() -> None:
    assert read_yaml("") is None
    assert read_yaml("a: &x {b: 1}\nc: {<<: *x, d: [yes, null]}") == {"a": {"b": 1}, "c": {"b": 1, "d": [True, None]}}


@given(st.text(alphabet="ab:-[]{}&*!?|>'\"0x_% \n\t<", max_size=60) | st.binary(max_size=60))
def test_any_text_is_data_or_its_error(text: str | bytes) -> None:
    try:
        read_yaml(text)
    except YamlTextError:
        return
