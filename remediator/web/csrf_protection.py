"""Checks that a form was sent by one of this controller's pages. Pure: headers and secrets in, a verdict out."""

from __future__ import annotations

import hashlib
import hmac
import re
from urllib.parse import urlsplit

_PATH_HERE = re.compile(r"/(?![/\\])[!-\[\]-~]*")  # nothing that a browser could take for another host


def is_same_origin(fetch_site: str | None, origin: str | None, hosts: frozenset[str]) -> bool:
    """Whether a POST was sent by one of this controller's pages.

    Browsers send `Sec-Fetch-Site` over secure connections. Without it, `Origin` must name one of the hosts that the request
    was addressed to. A request with neither header is rejected: every browser sends one of them with a form.
    """
    if fetch_site is not None:
        return fetch_site == "same-origin"
    try:
        netloc = urlsplit(origin or "").netloc
    except ValueError:  # the header comes from an untrusted client
        return False
    return bool(netloc) and netloc in hosts


def csrf_token(secret: str) -> str:
    """The token that a form must carry, derived from the session's secret.

    The secret is hashed first: HMAC pads short keys with zero bytes, so that two of them could give one token.
    """
    key = hashlib.sha256(secret.encode()).digest()
    return hmac.new(key, b"form", hashlib.sha256).hexdigest()[:32]


def is_csrf_token_valid(token: str, secret: str) -> bool:
    """Whether a form's token belongs to the session."""
    return hmac.compare_digest(token.encode(), csrf_token(secret).encode())


def local_redirect_path(text: str) -> str:
    r"""Where to redirect after a login: a path of this controller, or the first page.

    >>> [local_redirect_path(t) for t in ("/nodes/n1?x=1", "//evil.example", "https://evil.example", "/\\evil.example")]
    ['/nodes/n1?x=1', '/', '/', '/']
    """
    return text if _PATH_HERE.fullmatch(text) else "/"
