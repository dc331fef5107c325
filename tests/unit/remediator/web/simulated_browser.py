"""Somebody with a browser's habits: keeps cookies, says where a form came from, and fills in what the page hides in it."""

from __future__ import annotations

import re
from http.cookies import SimpleCookie
from typing import Any
from urllib.parse import urlencode

from tests.unit.remediator.api.in_process_controller import Answer, Inside


class Browser:
    """One person at one controller."""

    def __init__(self, centre: Inside, **more: Any) -> None:
        self.centre = centre
        self.cookies: dict[str, str] = {}
        self.more = more

    def get(self, path: str, headers: dict[str, str] | None = None) -> Answer:
        return self._call("GET", path, b"", headers or {})

    def post(self, path: str, fields: dict[str, str], headers: dict[str, str] | None = None) -> Answer:
        usual = {"sec-fetch-site": "same-origin"} if headers is None else headers
        return self._call("POST", path, urlencode(fields).encode(), usual)

    def log_in(self, who: str) -> Browser:
        answer = self.post("/login", {"token": self.centre.token[who], "next": "/"})
        assert answer.status == 303, answer.body
        return self

    def csrf(self, path: str = "/") -> str:
        found = re.search(rb'name="csrf" value="([0-9a-f]+)"', self.get(path).body)
        assert found is not None
        return found[1].decode()

    def _call(self, method: str, path: str, body: bytes, headers: dict[str, str]) -> Answer:
        kept = {"cookie": "; ".join(f"{k}={v}" for k, v in self.cookies.items())} if self.cookies else {}
        answer = self.centre.call(method, path, "", body, kept | headers, **self.more)
        for name, morsel in SimpleCookie(answer.headers.get("set-cookie", "")).items():
            self.cookies[name] = morsel.value
            if not morsel.value:
                del self.cookies[name]
        return answer
