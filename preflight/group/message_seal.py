"""Authenticates a group's records: each carries a protocol version and a seal made with the group's key. Pure.

Without a key the seal only detects truncation: anybody who reaches the store can create it.
"""

from __future__ import annotations

import hashlib
import hmac

LANGUAGE = 2  # incremented when older processes would misread changed records
KEY_NAME = "HEALTHD_GROUP_KEY"
KEY_CHARACTERS_MIN = 16


class SealError(ValueError):
    """A record that this group did not write. The message says how its author differs."""


class MessageSeal:
    """Seals and opens records for one run: `where` is part of the seal, so that records cannot be moved or replayed."""

    def __init__(self, key: bytes, run: str) -> None:
        self._key = key
        self._run = run

    def close(self, where: str, text: bytes) -> str:
        """The sealed record for storage under the name `where`."""
        return f"{LANGUAGE} {self._code(where, text)} {text.decode()}"

    def open(self, where: str, sealed: bytes) -> bytes:
        """The record that was sealed.

        Raises:
            SealError: it is from another version of preflight, or has another key.
        """
        language, _, rest = sealed.partition(b" ")
        if language != str(LANGUAGE).encode():
            raise SealError("runs another version of preflight; install the same version on all nodes")
        code, _, text = rest.partition(b" ")
        if not hmac.compare_digest(code, self._code(where, text).encode()):
            raise SealError(f"has another key; give all nodes of a group the same {KEY_NAME}")
        return text

    def name(self, where: str) -> str:
        """A name that only holders of the key can derive."""
        return self._code("name", where.encode())

    def _code(self, where: str, text: bytes) -> str:
        return hmac.digest(self._key, f"{self._run}\n{where}\n".encode() + text, hashlib.sha256).hex()
