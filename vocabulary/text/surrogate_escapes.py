"""Escapes names that are not valid text: a file name may hold any bytes, which Python keeps as surrogates."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def escape_surrogates(text: str) -> str:
    r"""Return the text, with everything that cannot be encoded as UTF-8 escaped.

    >>> escape_surrogates("caf\udce9.beacon")
    'caf\\xe9.beacon'
    >>> escape_surrogates("\ud800")
    '\\ud800'
    """
    return text if text.isascii() else _SURROGATE.sub(_escape_surrogate, text)


def _escape_surrogate(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
