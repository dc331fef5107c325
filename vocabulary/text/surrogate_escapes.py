"""Makes text out of names that are no text: a file name may hold any bytes, and Python keeps the odd ones as surrogates."""

from __future__ import annotations

import re

_SURROGATE = re.compile("[\ud800-\udfff]")


def escape_surrogates(text: str) -> str:
    r"""The text, with everything that cannot be written as UTF-8 as an escape.

    >>> escape_surrogates("caf\udce9.beacon")
    'caf\\xe9.beacon'
    >>> escape_surrogates("\ud800")
    '\\ud800'
    """
    return text if text.isascii() else _SURROGATE.sub(_escape_surrogate, text)


def _escape_surrogate(match: re.Match[str]) -> str:
    code = ord(match[0])
    return f"\\x{code - 0xDC00:02x}" if 0xDC80 <= code <= 0xDCFF else f"\\u{code:04x}"
