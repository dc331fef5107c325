"""A cache of one kind of objects, kept current by a list and a watch.

A stale cache says so at once, and is listed again: a reopened watch delivers missed events only a moment later, and a
hold of ours that is not visible in that moment would count as lifted.
"""

from __future__ import annotations

import logging
import secrets
import threading
import time
from collections.abc import Iterator, Mapping
from typing import Generic, Protocol, TypeVar

import msgspec

from remediator.schedulers.kubernetes.api_connection import CHUNK, ApiAnswer, ApiConnection, ApiServerUnavailableError
from remediator.schedulers.kubernetes.api_objects import ApiStatus, ListPage, VersionedObject, WatchEvent
from remediator.schedulers.kubernetes.kubernetes_options import KubernetesOptions

log = logging.getLogger(__name__)
PAGE = "500"
BACK_OFF_FIRST_S = 0.25
BACK_OFF_MAX_S = 30.0
WATCH_S = 300  # the server ends a watch after once to twice this time, so not all at once
GONE = 410
_chance = secrets.SystemRandom()


class ExpiredVersionError(Exception):
    """The server no longer has the events since our version."""


class NamedObject(Protocol):
    """An object with a name, of which a newer version replaces an older one."""

    @property
    def key(self) -> str:
        """Its name among its kind."""


T = TypeVar("T", bound=NamedObject)


class WatchCache(Generic[T]):
    """Every object at `path` that `query` selects, kept by a thread of its own; `close` ends it."""

    def __init__(
        self, connection: ApiConnection, options: KubernetesOptions, path: str, query: Mapping[str, str], kind: type[T]
    ) -> None:
        self._connection = connection
        self._options = options
        self._path = path
        self._query = dict(query)
        self._kind = msgspec.json.Decoder(kind)
        self._changed = threading.Condition()
        self._items: dict[str, tuple[str, T]] = {}
        self._put_meanwhile: dict[str, tuple[str, T]] | None = None  # while a list is read
        self._version = ""
        self._synced = self._tried = False
        self._connected = False
        self._heard_at = 0.0
        self._trouble = "not asked yet"
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, name=f"watch {path}", daemon=True)

    def start(self) -> None:
        """Start listing and watching."""
        self._thread.start()

    def close(self) -> None:
        """Stop; the thread exits at the server's next message, or after `quiet_s`."""
        self._stopping.set()

    def wait(self, timeout_s: float) -> None:
        """Wait until everything was listed once, or that failed, or for `timeout_s`."""
        with self._changed:
            self._changed.wait_for(lambda: self._synced or self._tried, timeout_s)

    def stale(self) -> str:
        """Return why the cache must not be used; empty if it may."""
        with self._changed:
            if not self._synced:
                return self._trouble
            silent = time.monotonic() - self._heard_at
            allowed = self._options.stale_after_s + (self._options.quiet_s if self._connected else 0.0)
            if silent <= allowed:
                return ""
            return f"its watch has been silent for {allowed:g} s" if self._connected else self._trouble

    def items(self) -> dict[str, T]:
        """Return all objects by key."""
        with self._changed:
            return {key: item for key, (_, item) in self._items.items()}

    def get(self, key: str) -> T | None:
        """Return one object as last seen; None if there is none."""
        with self._changed:
            known = self._items.get(key)
        return known[1] if known is not None else None

    def put(self, item: T, version: str) -> None:
        """Store the result of our own call if it is newer; otherwise the watch delivers it."""
        with self._changed:
            if self._put_meanwhile is not None:
                self._put_meanwhile[item.key] = (version, item)
            known = self._items.get(item.key)
            if known is not None and _is_newer_version(version, known[0]):
                self._items[item.key] = (version, item)

    def _run(self) -> None:
        failed = 0
        while not self._stopping.is_set():
            try:
                if not self._version or self.stale():
                    self._list()
                self._watch()
                failed = 0
                continue
            except ExpiredVersionError:
                self._version = ""
                trouble = "the watch fell too far behind"
            except ApiServerUnavailableError as error:
                trouble = str(error)
            except Exception as error:
                log.exception("watching %s failed", self._path)
                trouble, self._version = repr(error), ""
            failed = 1 if self._connected else failed + 1
            self._lost(trouble)
            pause = min(BACK_OFF_MAX_S, BACK_OFF_FIRST_S * 2 ** min(failed - 1, 10))
            self._stopping.wait(pause * _chance.uniform(0.5, 1.0))

    def _lost(self, trouble: str) -> None:
        with self._changed:
            # The text about an outage stays the same until it ends: every change would be stored for every node.
            if self._connected or not self._synced:
                if trouble != self._trouble:
                    log.warning("%s: %s", self._path, trouble)
                self._trouble = trouble
            self._connected, self._tried = False, True
            self._changed.notify_all()

    def _heard(self) -> None:
        self._connected = True
        self._heard_at = time.monotonic()

    def _list(self) -> None:
        """List from the newest state, never from another replica's cache: ours must not go back in time."""
        found: dict[str, tuple[str, T]] = {}
        with self._changed:
            self._put_meanwhile = {}
        version = ""
        for page in list_pages(self._connection, self._path, self._query):
            for raw in page.items or ():
                item = self._kind.decode(raw)
                found[item.key] = (_decode_resource_version(raw), item)
            version = page.metadata.resource_version
        with self._changed:
            meanwhile, self._put_meanwhile = self._put_meanwhile or {}, None
            newer = {
                key: put for key, put in meanwhile.items() if key in found and _is_newer_version(put[0], found[key][0])
            }
            self._items, self._version, self._synced = found | newer, version, True
            self._heard()
            self._changed.notify_all()

    def _watch(self) -> None:
        query = {
            **self._query,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": self._version,
            "timeoutSeconds": str(_chance.randint(WATCH_S, 2 * WATCH_S)),
        }
        with self._connection.stream(self._path, query, self._options.quiet_s) as response:
            if response.status != 200:
                raise _refusal_error(ApiAnswer(response.status, response.read(CHUNK)).refusal, response.status)
            with self._changed:
                if not self._connected and self.stale():  # it went stale while this was opened: list first
                    return
                if self._connected:  # after a failure, the new watch must deliver first: events may be missing
                    self._heard()
                self._connected = True
            rest = b""
            for part in response.stream(CHUNK):
                *lines, rest = (rest + part).split(b"\n")
                for line in lines:
                    if line.strip():
                        self._take(msgspec.json.decode(line, type=WatchEvent))
                if self._stopping.is_set():
                    return

    def _take(self, event: WatchEvent) -> None:
        if event.type == "ERROR":
            status = msgspec.json.decode(event.object, type=ApiStatus)
            raise _refusal_error(status, status.code or 0)
        version = _decode_resource_version(event.object)
        with self._changed:
            self._heard()
            self._version = version
            if event.type == "BOOKMARK":
                return
            item = self._kind.decode(event.object)
            if event.type == "DELETED":
                self._items.pop(item.key, None)
            elif (known := self._items.get(item.key)) is None or not _is_newer_version(known[0], version):
                self._items[item.key] = (version, item)


def list_pages(connection: ApiConnection, path: str, query: Mapping[str, str]) -> Iterator[ListPage]:
    """Yield the pages of a list of the newest state.

    Raises:
        ApiServerUnavailableError: no answer in time, or a refusal.
        ExpiredVersionError: the list took so long that the server no longer has its next page.
    """
    query = {**query, "limit": PAGE}
    while True:
        page = _decode_list_page(connection.call("GET", path, query))
        yield page
        if not page.metadata.next:
            return
        query["continue"] = page.metadata.next


def _decode_list_page(answer: ApiAnswer) -> ListPage:
    if not answer.good:
        raise _refusal_error(answer.refusal, answer.status)
    return msgspec.json.decode(answer.body, type=ListPage)


def _refusal_error(status: ApiStatus, code: int) -> Exception:
    if code == GONE or status.reason in {"Expired", "Gone"}:
        return ExpiredVersionError()
    return ApiServerUnavailableError(f"the API server refuses: {status.message or status.reason or code}")


def _decode_resource_version(raw: msgspec.Raw) -> str:
    return msgspec.json.decode(raw, type=VersionedObject).metadata.resource_version


def _is_newer_version(version: str, than: str) -> bool:
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)
