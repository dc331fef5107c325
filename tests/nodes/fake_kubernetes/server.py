"""An API server of Kubernetes in this process, over HTTP, with what a client must be able to bear."""

from __future__ import annotations

import contextlib
import json
import re
import ssl
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from typing_extensions import Self

from tests.nodes.fake_kubernetes import patches
from tests.nodes.fake_kubernetes.admission import Policies
from tests.nodes.fake_kubernetes.eviction import evict
from tests.nodes.fake_kubernetes.rights import Asked, allowed
from tests.nodes.fake_kubernetes.selectors import fields_match, labels_match
from tests.nodes.fake_kubernetes.store import KINDS, RefusedError, Store, Thing

PATH = re.compile(
    r"/(?:api/(?P<core>v1)|apis/(?P<group>[^/]+/[^/]+))(?:/namespaces/(?P<namespace>[^/]+))?"
    r"/(?P<plural>[a-z]+)(?:/(?P<name>[^/]+))?(?:/(?P<part>[a-z]+))?"
)
HOW = {
    "application/merge-patch+json": "merge",
    "application/strategic-merge-patch+json": "strategic",
    "application/json-patch+json": "json",
    "application/apply-patch+yaml": "apply",
}
BOOKMARK_S = 0.2


class Server(ThreadingHTTPServer):
    """The server and its moods. `rules`: per bearer token what it may do; a token that is not there is nobody's."""

    daemon_threads = True
    block_on_close = False
    request_queue_size = 128  # with the default of 5, many clients at once are reset

    def __init__(self, rules: dict[str, list[dict[str, Any]] | None], certificate: Path | None = None) -> None:
        """`certificate`: a file with a key and a certificate for 127.0.0.1, to speak TLS."""
        super().__init__(("127.0.0.1", 0), _Handler)
        self.scheme = "http"
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            self.socket = context.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)
            self.scheme = "https"
        self.store = Store()
        self.rules = rules
        self.policies = Policies(())
        self.users: dict[str, dict[str, Any]] = {}  # by token, as admission policies see them
        self.namespaces: dict[str, dict[str, str]] = {}  # their labels
        self.asked: list[tuple[str, Asked]] = []
        self.bodies: list[tuple[str, str, Any]] = []
        self.dark = threading.Event()  # accepts, and hangs up
        self.silent = threading.Event()  # accepts, and says nothing
        self.busy = 0  # so many requests from now on, watches aside, are answered 429
        self.busy_watches = 0  # and so many watches
        self.retry_after = "0"
        self.failing = 0  # not 0: every request is answered with this number, and nothing is done
        self.failing_late = False  # a write is done, and answered 500 all the same
        self.before_write: list[Any] = []  # called once each, before the next write: somebody else was quicker
        self.drops = 0  # raised: every watch that is open now ends at once
        self._thread = threading.Thread(target=self.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)

    @property
    def url(self) -> str:
        return f"{self.scheme}://127.0.0.1:{self.server_address[1]}"

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *why: object) -> None:
        self.silent.clear()
        self.dark.set()
        self.shutdown()
        self.server_close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """A client that hung up is no news."""


class _EndedError(Exception):
    """The connection ends here."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def log_message(self, *args: Any) -> None:
        """Nobody reads it."""

    def do_GET(self) -> None:
        self._serve("GET")

    def do_PATCH(self) -> None:
        self._serve("PATCH")

    def do_POST(self) -> None:
        self._serve("POST")

    def do_DELETE(self) -> None:
        self._serve("DELETE")

    def _serve(self, method: str) -> None:
        server = self.server
        while server.silent.is_set():
            time.sleep(0.02)
        if server.dark.is_set():
            self.close_connection = True
            return
        self._drops = server.drops  # before the call is told of in `asked`: who waits for that may raise it at once
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        try:
            self._answer(200 if method != "POST" else 201, self._do(method, json.loads(data) if data else None))
        except RefusedError as error:
            self._refuse(error)
        except patches.PatchError as error:
            self._refuse(RefusedError(422, "Invalid", str(error)))
        except _EndedError:
            self.close_connection = True

    def _do(self, method: str, body: Any) -> Thing:
        server = self.server
        url = urlsplit(self.path)
        query = dict(parse_qsl(url.query, keep_blank_values=True))
        match = PATH.fullmatch(url.path)
        scheme, _, token = self.headers.get("Authorization", "").partition(" ")
        if scheme.lower() != "bearer" or token not in server.rules:
            raise RefusedError(401, "Unauthorized", "Unauthorized")
        known = KINDS.get(match["plural"]) if match else None
        if match is None or known is None or known.api_version != (match["core"] or match["group"]):
            raise RefusedError(404, "NotFound", "the server could not find the requested resource")
        plural, part = match["plural"], match["part"] or ""
        asked = Asked(_verb(method, match["name"], query), known.group, f"{plural}/{part}" if part else plural)
        server.asked.append((token, asked))
        if body is not None:
            server.bodies.append((token, f"{method} {url.path}", body))
        if not allowed(asked, server.rules[token]):
            raise RefusedError(403, "Forbidden", f"cannot {asked.verb} resource {asked.resource}")
        if server.failing:
            raise RefusedError(server.failing, "InternalError", "etcdserver: request timed out")
        counter = "busy_watches" if asked.verb == "watch" else "busy"
        if (left := getattr(server, counter)) > 0:
            setattr(server, counter, left - 1)
            raise RefusedError(429, "TooManyRequests", "the server has received too many requests")
        place = (plural, match["namespace"] or "", match["name"] or "")
        if method == "GET":
            return self._read(place, query)
        if server.before_write and token != "operator":
            server.before_write.pop(0)()
        written = self._write(method, place, part, query, body, token)
        if server.failing_late and token != "operator":
            raise RefusedError(500, "InternalError", "etcdserver: request timed out")
        return written

    def _read(self, place: tuple[str, str, str], query: dict[str, str]) -> Thing:
        plural, namespace, name = place
        if name:
            return self._shown(self.server.store.get(plural, namespace, name))
        if query.get("watch") == "true":
            self._watch(plural, namespace, query)
        return self._list(plural, namespace, query)

    def _write(
        self, method: str, place: tuple[str, str, str], part: str, query: dict[str, str], body: Any, token: str
    ) -> Thing:
        store = self.server.store
        plural, namespace, name = place

        def admit(before: Thing | None, after: Thing | None) -> None:
            self._admit(token, "UPDATE" if before else "CREATE", place, part, before, after)

        if method == "DELETE":
            store.delete(plural, namespace, name)
            return {"apiVersion": "v1", "kind": "Status", "status": "Success"}
        if part == "eviction":
            admit(None, body)
            return evict(store, namespace, name, body)
        if method == "POST":
            return store.create(plural, body)
        how = HOW.get(self.headers.get("Content-Type", ""))
        if how is None:
            raise RefusedError(415, "UnsupportedMediaType", "the body of the request was in an unknown format")
        manager = query.get("fieldManager") or self.headers.get("User-Agent", "").partition("/")[0]
        return store.change(plural, namespace, name, body, how, manager, part, admit=admit)

    def _admit(
        self,
        token: str,
        operation: str,
        place: tuple[str, str, str],
        part: str,
        before: Thing | None,
        after: Thing | None,
    ) -> None:
        """As a server asks its policies, with whoever has no name in `users` past them."""
        server, (plural, namespace, name) = self.server, place
        if token not in server.users:
            return
        request: Thing = {"operation": operation, "userInfo": server.users[token], "name": name}
        request |= {key: value for key, value in (("namespace", namespace), ("subResource", part)) if value}
        space = {"metadata": {"name": namespace, "labels": server.namespaces.get(namespace, {})}} if namespace else None
        given = {"object": after, "oldObject": before, "request": request, "namespaceObject": space}
        if why := server.policies.denied(f"{plural}/{part}" if part else plural, given):
            raise RefusedError(422, "Invalid", f'{plural} "{name}" is forbidden: {why}')

    def _shown(self, thing: Thing) -> Thing:
        if "as=PartialObjectMetadata" not in self.headers.get("Accept", ""):
            return thing
        return {"apiVersion": "meta.k8s.io/v1", "kind": "PartialObjectMetadata", "metadata": thing["metadata"]}

    def _list(self, plural: str, namespace: str, query: dict[str, str]) -> Thing:
        store = self.server.store
        with store.changed:
            found = [thing for thing in store.things[plural].values() if _selected(thing, namespace, query)]
            version = store.version
        begin = int(query.get("continue") or 0)
        end = begin + int(query.get("limit") or len(found) or 1)
        meta = {"resourceVersion": str(version)} | ({"continue": str(end)} if end < len(found) else {})
        kind = KINDS[plural]
        return {"apiVersion": kind.api_version, "kind": f"{kind.kind}List", "metadata": meta, "items": found[begin:end]}

    def _watch(self, plural: str, namespace: str, query: dict[str, str]) -> None:
        """Ends with the connection."""
        server, store = self.server, self.server.store
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        seen = int(query["resourceVersion"])
        while not server.dark.is_set() and server.drops == self._drops:
            if seen < store.forgotten and not any(change.version == seen + 1 for change in store.past):
                gone = {"kind": "Status", "apiVersion": "v1", "status": "Failure", "reason": "Expired", "code": 410}
                self._line({"type": "ERROR", "object": {**gone, "message": f"too old resource version: {seen}"}})
                raise _EndedError
            with store.changed:
                news = [change for change in store.past if change.version > seen]
                if not news:
                    store.changed.wait(BOOKMARK_S)
            if server.silent.is_set():
                continue
            for change in news:
                seen = change.version
                for event in _event(change, plural, namespace, query):
                    self._line(event)
            if not news and query.get("allowWatchBookmarks") == "true":
                kind = KINDS[plural]
                mark = {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": {"resourceVersion": str(seen)}}
                self._line({"type": "BOOKMARK", "object": mark})
        raise _EndedError

    def _line(self, event: Thing) -> None:
        data = json.dumps(event).encode() + b"\n"
        try:
            self.wfile.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
            self.wfile.flush()
        except OSError as error:
            raise _EndedError from error

    def _refuse(self, error: RefusedError) -> None:
        status: Thing = {"apiVersion": "v1", "kind": "Status", "status": "Failure", "code": error.code}
        status |= {"reason": error.reason, "message": error.message}
        if error.causes:
            status["details"] = {"causes": error.causes}
        self._answer(error.code, status)

    def _answer(self, code: int, thing: Thing) -> None:
        data = json.dumps(thing).encode()
        with contextlib.suppress(OSError):
            self.send_response(code)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(data)))
            if code == 429:
                self.send_header("Retry-After", self.server.retry_after)
            self.end_headers()
            self.wfile.write(data)


def _verb(method: str, name: str, query: dict[str, str]) -> str:
    if method == "GET":
        return "get" if name else "watch" if query.get("watch") == "true" else "list"
    return {"PATCH": "patch", "POST": "create", "DELETE": "delete"}[method]


def _selected(thing: Thing | None, namespace: str, query: dict[str, str]) -> bool:
    if thing is None:
        return False
    meta = thing["metadata"]
    return (
        (not namespace or meta.get("namespace") == namespace)
        and labels_match(query.get("labelSelector", ""), meta.get("labels", {}))
        and fields_match(query.get("fieldSelector", ""), thing)
    )


def _event(change: Any, plural: str, namespace: str, query: dict[str, str]) -> Iterator[Thing]:
    """What a watch with a selector says of a change: an object that leaves the selection is deleted to it."""
    if change.plural != plural:
        return
    before, after = (_selected(thing, namespace, query) for thing in (change.before, change.after))
    if after:
        yield {"type": "MODIFIED" if before else "ADDED", "object": change.after}
    elif before:
        meta = {**change.before["metadata"], "resourceVersion": str(change.version)}
        yield {"type": "DELETED", "object": {**(change.after or change.before), "metadata": meta}}
