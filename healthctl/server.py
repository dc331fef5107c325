"""Asks the remediator, and turns everything that can go wrong into one sentence."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from healthctl.exits import Exit, Failure
from vocabulary.wire import Problem, WireError, decode, encode

if TYPE_CHECKING:
    import requests

CONNECT_DEADLINE_S = 5.0
ANSWER_DEADLINE_S = 30.0
SERVER_VARIABLE = "HEALTHCTL_SERVER"
CA_VARIABLE = "HEALTHCTL_CA_FILE"
TOKEN_VARIABLE = "HEALTHCTL_TOKEN_FILE"  # noqa: S105 - a variable's name

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class Unreachable(Failure):
    """Nobody answered. Worth another try, unlike a refusal."""


class Refused(Failure):
    """The server understood and says no; `status` is its number, such as 404."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class Server:
    """The remediator's HTTP API, as one operator sees it."""

    def __init__(self, url: str, token: str, ca_file: Path | None = None) -> None:
        import requests

        self._url = url.rstrip("/")
        self._session = requests.Session()
        self._session.auth = _Bearer(token)
        if ca_file is not None:
            self._session.verify = str(ca_file)
            self._session.trust_env = False  # $REQUESTS_CA_BUNDLE would go first

    def get(self, path: str, kind: type[T], *, wait_s: float = 0.0, **query: float | str) -> T:
        """Fetch `path` and read it as `kind`; the server may take `wait_s` longer than usual to answer.

        Raises:
            Unreachable: no answer, or a broken one.
            Refused: the server says no.
            Failure: it speaks another language.
        """
        if wait_s:
            query["wait_s"] = wait_s
        return self._read(path, self._ask("GET", path, ANSWER_DEADLINE_S + wait_s, params=query), kind)

    def page(self, path: str, **query: str) -> bytes:
        """Fetch `path` as it is. Raises as `get`."""
        content: bytes = self._ask("GET", path, ANSWER_DEADLINE_S, params=query).content
        return content

    def post(self, path: str, message: Any, headers: dict[str, str] | None = None) -> None:
        """Send a message that is answered without words. Raises as `get`."""
        self._ask("POST", path, ANSWER_DEADLINE_S, data=b"" if message is None else encode(message), headers=headers)

    def exchange(self, path: str, message: Any, kind: type[T]) -> T:
        """Send a message and read the answer as `kind`. Raises as `get`."""
        return self._read(path, self._ask("POST", path, ANSWER_DEADLINE_S, data=encode(message)), kind)

    def _read(self, path: str, answer: requests.Response, kind: type[T]) -> T:
        try:
            return decode(answer.content, kind)
        except WireError as error:
            raise Failure(
                f"{self._url}{path}: the answer cannot be read: {error}; is this a remediator of our version?"
            ) from None

    def _ask(self, method: str, path: str, deadline_s: float, **more: Any) -> requests.Response:
        import requests

        try:
            answer = self._session.request(
                method, f"{self._url}{path}", timeout=(CONNECT_DEADLINE_S, deadline_s), **more
            )
        except (requests.exceptions.MissingSchema, requests.exceptions.InvalidSchema, requests.exceptions.InvalidURL):
            raise Failure(f"not a server address: {self._url!r}; it looks like http://host:15180", Exit.USAGE) from None
        except requests.RequestException as error:
            raise Unreachable(f"{self._url}: no answer: {_root(error)}; {_todo(error)}") from None
        if answer.status_code >= 400:
            raise self._refusal(answer)
        return answer

    def _refusal(self, answer: requests.Response) -> Failure:
        try:
            problem = decode(answer.content, Problem)
        except WireError:
            problem = Problem(error=answer.reason or "no reason given")
        said = "; ".join(part for part in (problem.error, problem.detail, problem.todo) if part)
        words = f"{self._url}: {answer.status_code}: {said}"
        if answer.status_code >= 500:
            return Unreachable(words)
        if answer.status_code == 401 and not problem.todo:
            words += f"; give another token with --token-file or {TOKEN_VARIABLE}"
        return Refused(words, answer.status_code)


class _Bearer:
    """Puts our token on each request; as `auth`, so that no ~/.netrc entry can take its place."""

    def __init__(self, token: str) -> None:
        self._token = token

    def __call__(self, request: requests.PreparedRequest) -> requests.PreparedRequest:
        request.headers["Authorization"] = f"Bearer {self._token}"
        return request


def connection_options(command: F) -> F:
    """Give a command ``--server``, ``--token-file`` and ``--ca-file``, which `connect` takes."""
    for option in (
        click.option(
            "--ca-file",
            envvar=CA_VARIABLE,
            type=click.Path(path_type=Path),
            help="Certificates that the server's must be signed by. [default: the system's]",
            show_envvar=True,
        ),
        click.option(
            "--token-file",
            envvar=TOKEN_VARIABLE,
            type=click.Path(path_type=Path),
            help="File with the operator's token.",
            show_envvar=True,
        ),
        click.option(
            "--server", "url", envvar=SERVER_VARIABLE, metavar="URL", help="The remediator.", show_envvar=True
        ),
    ):
        command = option(command)
    return command


def connect(url: str | None, token_file: Path | None, ca_file: Path | None) -> Server:
    """The server that the options name; nothing is asked yet.

    Raises:
        Failure: one of them is missing or cannot be used.
    """
    if not url:
        raise Failure(f"no server given; use --server URL or set {SERVER_VARIABLE}")
    if token_file is None:
        raise Failure(f"no token given; use --token-file PATH or set {TOKEN_VARIABLE}")
    if ca_file is not None and not ca_file.is_file():
        raise Failure(f"{ca_file}: there is no such file of certificates")
    return Server(url, _read_token(token_file), ca_file)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same options for a command that is called with a `Server` as its argument ``server``."""

    @connection_options
    @wraps(command)
    def with_server(*args: Any, url: str | None, token_file: Path | None, ca_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, server=connect(url, token_file, ca_file), **kwargs)

    return with_server


def _read_token(path: Path) -> str:
    try:
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise Failure(f"{path}: the token cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        todo = "'remediator token issue --operator NAME' prints one"
        raise Failure(f"{path}: holds no token (one line of printable ASCII); {todo}")
    return token


def _todo(error: requests.RequestException) -> str:
    import requests

    if isinstance(error, requests.exceptions.SSLError):
        if "certificate" in str(error).lower():
            return f"name the file of whoever signed its certificate with --ca-file or {CA_VARIABLE}"
        return "does it speak TLS? without it the address begins with http://"
    if isinstance(error, requests.Timeout):
        return "is the remediator there, and does a firewall let us through?"
    if "BadStatusLine" in str(error) or "RemoteDisconnected" in str(error):
        return "is it a remediator, and does it want https:// there?"
    if "NameResolution" in str(error):
        return "is the host's name right?"
    return "is the remediator running there?"


def _root(error: BaseException) -> str:
    """The innermost reason: the library wraps 'connection refused' three times."""
    while True:
        inner = error.__cause__ or error.__context__ or getattr(error, "reason", None)
        if not isinstance(inner, BaseException):
            return getattr(error, "strerror", None) or str(error) or type(error).__name__
        error = inner
