"""Serves styles and scripts under names that contain their digest, so that browsers can cache them forever."""

from __future__ import annotations

import hashlib
from functools import cache
from importlib.resources import files

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from remediator.web.template_rendering import HEADERS

TYPES = {".css": "text/css", ".js": "text/javascript", ".svg": "image/svg+xml"}
DIGEST_CHARS = 16


@cache
def _static_contents() -> dict[str, bytes]:
    place = files("remediator.web") / "static"
    return {f.name: f.read_bytes() for f in sorted(place.iterdir(), key=lambda f: f.name) if _content_type(f.name)}


@cache
def _static_digest() -> str:
    """The digest of all files together, because scripts import each other by relative path."""
    whole = hashlib.sha256()
    for name, content in _static_contents().items():
        whole.update(f"{name}\n{len(content)}\n".encode() + content)
    return whole.hexdigest()[:DIGEST_CHARS]


def static_path(name: str) -> str:
    """The URL path of a file."""
    assert name in _static_contents(), name  # noqa: S101 - an error in a template, found by the first test that renders it
    return f"/static/{_static_digest()}/{name}"


async def _serve_static_file(request: Request) -> Response:
    content = _static_contents().get(request.path_params["name"])
    if content is None or request.path_params["digest"] != _static_digest():
        raise HTTPException(404, "this version has no such file; reload the page")
    headers = HEADERS | {"Cache-Control": "public, max-age=31536000, immutable"}
    return Response(content, headers=headers, media_type=_content_type(request.path_params["name"]))


def _content_type(name: str) -> str:
    return TYPES.get(name[name.rfind(".") :], "")


ROUTE = Route("/static/{digest}/{name}", _serve_static_file, methods=["GET"])
