"""HTTP client of the remediator; turns every failure into a one-sentence error."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from healthctl.exit_codes import Exit, Failure
from vocabulary.messages.wire import Problem, WireError, decode_message, encode_message
from vocabulary.secret_file import read_by_others

if TYPE_CHECKING:
    from urllib.error import HTTPError
    from urllib.request import OpenerDirector

ANSWER_DEADLINE_S = 30.0
LATER = (408, 429)  # timeout and rate limit: worth a retry
SERVER_VARIABLE = "HEALTHCTL_SERVER"
CA_VARIABLE = "HEALTHCTL_CA_FILE"
TOKEN_VARIABLE = "HEALTHCTL_TOKEN_FILE"  # noqa: S105 - a variable's name

T = TypeVar("T")
F = TypeVar("F", bound=Callable[..., Any])


class ServerUnreachable(Failure):
    """The server did not respond. Unlike a refusal, a retry may succeed."""


class RequestRefused(Failure):
    """The server refused the request; `status` is the HTTP status, such as 404."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class RemediatorClient:
    """The remediator's HTTP API as seen by one operator. Uses proxies from the environment; follows no redirect."""

    def __init__(self, url: str, token: str, ca_file: Path | None = None) -> None:
        self._url = url.rstrip("/")
        self._token = token
        self._ca_file = ca_file
        self._opener: OpenerDirector | None = None

    def get(self, path: str, kind: type[T], /, *, wait_s: float = 0.0, **query: float | str) -> T:
        """Fetch `path` and decode it as `kind`; the server may take `wait_s` longer than usual to respond.

        Raises:
            ServerUnreachable: no response, or an incomplete one.
            RequestRefused: the server refused.
            Failure: the response does not decode.
        """
        if wait_s:
            query["wait_s"] = wait_s
        return self._read(path, self._ask("GET", _append_query(path, query), ANSWER_DEADLINE_S + wait_s), kind)

    def page(self, path: str, **query: str) -> bytes:
        """Fetch `path` as it is. Raises as `get`."""
        return self._ask("GET", _append_query(path, query), ANSWER_DEADLINE_S)

    def post(self, path: str, message: Any, headers: dict[str, str] | None = None) -> None:
        """Send a message whose response has no body. Raises as `get`."""
        self._ask("POST", path, ANSWER_DEADLINE_S, b"" if message is None else encode_message(message), headers)

    def exchange(self, path: str, message: Any, kind: type[T]) -> T:
        """Send a message and decode the response as `kind`. Raises as `get`."""
        return self._read(path, self._ask("POST", path, ANSWER_DEADLINE_S, encode_message(message)), kind)

    def _read(self, path: str, answer: bytes, kind: type[T]) -> T:
        try:
            return decode_message(answer, kind)
        except WireError as error:
            raise Failure(
                f"{self._url}{path}: cannot decode the response: {error}; check that the controller and healthctl have the same version"
            ) from None

    def _ask(
        self,
        method: str,
        path: str,
        deadline_s: float,
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
    ) -> bytes:
        from http.client import HTTPException
        from urllib.error import HTTPError
        from urllib.request import Request

        from healthctl.api_client.http_opener import connection_advice, create_server_opener, innermost_reason

        try:
            if self._opener is None:
                self._opener = create_server_opener(self._url, self._ca_file)
            known = {"Authorization": f"Bearer {self._token}", "Content-Type": "application/json"}
            request = Request(f"{self._url}{path}", body, known | (headers or {}), method=method)  # noqa: S310 - `opener` looked at the scheme
            with self._opener.open(request, timeout=deadline_s) as answer:
                content: bytes = answer.read()
                return content
        except HTTPError as error:
            with error:
                raise self._refusal(error) from None
        except ValueError:
            raise Failure(f"not a server address: {self._url!r}; expected http://host:15180", Exit.USAGE) from None
        except (OSError, HTTPException) as error:
            raise ServerUnreachable(
                f"{self._url}: no answer: {innermost_reason(error)}; {connection_advice(error)}"
            ) from None

    def _refusal(self, answer: HTTPError) -> Failure:
        try:
            problem = decode_message(answer.read(), Problem)
        except (WireError, OSError):
            problem = Problem(error=str(answer.reason) or "no reason given")
        said = "; ".join(part for part in (problem.error, problem.detail, problem.todo) if part)
        words = f"{self._url}: {answer.code}: {said}"
        if answer.code >= 500 or answer.code in LATER:
            return ServerUnreachable(words)
        if answer.code == 401 and not problem.todo:
            words += f"; give another token with --token-file or {TOKEN_VARIABLE}"
        if answer.code == 403 and not problem.todo:
            words += "; this needs a token with another role: an admin creates one with 'healthctl token issue'"
        if answer.code == 404 and not problem.todo:
            words += "; check that this is a controller of the same version as healthctl"
        if answer.code < 400:
            words += "; redirects are not followed: use the redirect's target as the address"
        return RequestRefused(words, answer.code)


def _append_query(path: str, query: Mapping[str, object]) -> str:
    from urllib.parse import urlencode

    return f"{path}?{urlencode(query)}" if query else path


def connection_options(command: F) -> F:
    """Give a command ``--server``, ``--token-file`` and ``--ca-file``, which `connect_to_server` takes."""
    for option in (
        click.option(
            "--ca-file",
            envvar=CA_VARIABLE,
            type=click.Path(path_type=Path),
            help="CA certificates to verify the server with. [default: the system's]",
            show_envvar=True,
        ),
        click.option(
            "--token-file",
            envvar=TOKEN_VARIABLE,
            type=click.Path(path_type=Path),
            help="File with your API token.",
            show_envvar=True,
        ),
        click.option(
            "--server", "url", envvar=SERVER_VARIABLE, metavar="URL", help="URL of the controller.", show_envvar=True
        ),
    ):
        command = option(command)
    return command


def connect_to_server(url: str | None, token_file: Path | None, ca_file: Path | None) -> RemediatorClient:
    """The server that the options name; sends no request.

    Raises:
        Failure: an option is missing or invalid.
    """
    if not url:
        raise Failure(f"no server given; use --server URL or set {SERVER_VARIABLE}")
    if token_file is None:
        raise Failure(f"no token given; use --token-file PATH or set {TOKEN_VARIABLE}")
    if ca_file is not None and not ca_file.is_file():
        raise Failure(f"{ca_file}: no such file of CA certificates")
    return RemediatorClient(url, _read_token(token_file), ca_file)


def server_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The same options for a command that is called with a `RemediatorClient` as its argument ``server``."""

    @connection_options
    @wraps(command)
    def with_server(*args: Any, url: str | None, token_file: Path | None, ca_file: Path | None, **kwargs: Any) -> Any:
        return command(*args, server=connect_to_server(url, token_file, ca_file), **kwargs)

    return with_server


def _read_token(path: Path) -> str:
    try:
        token = path.read_text("ascii").strip()
    except OSError as error:
        raise Failure(f"{path}: cannot read the token: {error.strerror}") from None
    except UnicodeDecodeError:
        token = ""
    if not token or not token.isprintable() or " " in token:
        todo = "an admin creates one with 'healthctl token issue --operator NAME'"
        raise Failure(f"{path}: contains no token (one line of printable ASCII); {todo}")
    if words := read_by_others(path):
        from healthctl.rendering.blocks import escape_control_chars

        click.echo(f"healthctl: {escape_control_chars(words)}", err=True)
    return token
