"""Did a form come from one of our own pages? Pure: headers and secrets in, an answer out."""

from __future__ import annotations

import hashlib
import hmac
import re
from urllib.parse import urlsplit

_PATH_HERE = re.compile(r"/(?![/\\])[!-\[\]-~]*")  # nothing that a browser could take for another host


def is_same_origin(fetch_site: str | None, origin: str | None, hosts: frozenset[str]) -> bool:
    """Whether a POST was sent by a page of ours.

    Browsers say so in `Sec-Fetch-Site` where the connection is safe; otherwise `Origin` must name one of the hosts by which
    the request was addressed. Every browser sends one of both with a form; who sends neither is none.
    """
    if fetch_site is not None:
        return fetch_site == "same-origin"
    try:
        netloc = urlsplit(origin or "").netloc
    except ValueError:  # anybody may send anything
        return False
    return bool(netloc) and netloc in hosts


def csrf_token(secret: str) -> str:
    """What a form must carry: it follows from the session's secret, which no other site's page knows."""
    return hmac.new(secret.encode(), b"form", hashlib.sha256).hexdigest()[:32]


def is_csrf_token_valid(token: str, secret: str) -> bool:
    """Whether a form's token is the session's."""
    return hmac.compare_digest(token.encode(), csrf_token(secret).encode())


def local_redirect_path(text: str) -> str:
    r"""Where to go on after a login: a path of ours, or the first page.

    >>> [local_redirect_path(t) for t in ("/nodes/n1?x=1", "//evil.example", "https://evil.example", "/\\evil.example")]
    ['/nodes/n1?x=1', '/', '/', '/']
    """
    return text if _PATH_HERE.fullmatch(text) else "/"
