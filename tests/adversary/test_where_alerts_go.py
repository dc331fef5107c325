"""Where the controller sends things is said in its configuration, by http or https, and nobody else can say it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from remediator.api.openapi_document import build_openapi_document
from remediator.notifications.receiver import check_receiver_url, read_receiver_url
from remediator.notifications.secret_files import SecretError

TARGETS = [
    "file:///etc/shadow",
    "FILE:/etc/shadow",
    "ftp://host/x",
    "gopher://host:25/_HELO",
    "data:text/plain,x",
    "unix:///run/docker.sock",
    "javascript:alert(1)",
    "//host/x",
    "http://",
    "http:///x",
    "https://host:99999/",
    "http://user:password@host/",
    "",
]


@pytest.mark.parametrize("url", TARGETS)
def test_what_is_no_web_address_is_no_target(url: str, tmp_path: Path) -> None:
    with pytest.raises(ValueError):  # noqa: PT011 - the words are `HttpReceiver`'s, and tried with it
        check_receiver_url(url, "")
    if "@" not in url:  # a password may stand in a file
        (tmp_path / "url").write_text(f"{url}\n")
        with pytest.raises(SecretError):
            read_receiver_url("", str(tmp_path / "url"))


def test_no_request_to_the_api_names_a_place_to_go_to() -> None:
    schemas: dict[str, Any] = build_openapi_document()["components"]["schemas"]
    asked = {
        name
        for operations in build_openapi_document()["paths"].values()
        for operation in operations.values()
        for name in msgspec.json.encode(operation.get("requestBody", {})).decode().split("schemas/")[1:]
    }
    wishes = {name.partition('"')[0] for name in asked}
    assert wishes >= {"CommandText", "SilenceRequest", "TokenRequest"}
    for name in wishes:
        fields = schemas[name].get("properties", {})
        assert not {
            field for field in fields if any(word in field for word in ("url", "host", "address", "file", "path"))
        }, name
