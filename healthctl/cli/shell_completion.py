"""Shell completion of names from the server, if it responds at once. Never prints an error.

Candidates become part of a command line, so names with characters special to a shell are left out.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

DEADLINE_S = 0.7  # the user waits for the completion
SHOWN_MAX = 100
ANSWER_BYTES_MAX = 1 << 22
_INCIDENT_ID = re.compile(r"[A-Za-z0-9]([A-Za-z0-9._-]{0,126}[A-Za-z0-9])?")

T = TypeVar("T")


class _Node(msgspec.Struct):
    node: str


class _Nodes(msgspec.Struct):
    nodes: list[_Node]


class _Incident(msgspec.Struct):
    id: str
    title: str = ""


class _Incidents(msgspec.Struct):
    incidents: list[_Incident]


def node_names(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:  # noqa: ARG001 - click's signature
    """Names of nodes with this prefix, sorted."""
    from vocabulary.identity import NODE_NAME

    found = _query_server(ctx, f"/v1/nodes?limit={SHOWN_MAX}&after={_list_offset_before(incomplete)}", _Nodes)
    names = [each.node for each in found.nodes] if found else []
    return [name for name in names if name.startswith(incomplete) and NODE_NAME.fullmatch(name)]


def incident_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - same
    """Ids of incidents with this prefix, newest first, each with its title."""
    from healthctl.rendering.blocks import escape_control_chars

    found = _query_server(ctx, "/v1/incidents", _Incidents)
    known = [each for each in found.incidents if _INCIDENT_ID.fullmatch(each.id)] if found else []
    fitting = [each for each in known if each.id.startswith(incomplete)]
    return [CompletionItem(each.id, help=escape_control_chars(each.title)) for each in fitting[:SHOWN_MAX]]


def _list_offset_before(text: str) -> str:
    """The URL-quoted list offset just before the first name that begins with `text`; the server lists what follows it."""
    from urllib.parse import quote

    return quote(f"{text[:-1]}{chr(max(ord(text[-1]) - 1, 0))}~" if text else "", safe="")


def _query_server(ctx: click.Context, path: str, kind: type[T]) -> T | None:
    """The response, or None on any error."""
    from urllib.request import Request

    from healthctl.api_client.http_opener import create_server_opener

    try:
        url = str(ctx.params.get("url") or os.environ["HEALTHCTL_SERVER"]).rstrip("/")
        token_file = ctx.params.get("token_file") or os.environ["HEALTHCTL_TOKEN_FILE"]
        ca_file = ctx.params.get("ca_file") or os.environ.get("HEALTHCTL_CA_FILE")
        headers = {"Authorization": f"Bearer {Path(token_file).read_text('ascii').strip()}"}
        door = create_server_opener(url, Path(ca_file) if ca_file else None)
        with door.open(Request(f"{url}{path}", headers=headers), timeout=DEADLINE_S) as answer:  # noqa: S310 - `opener` looked at the scheme
            content = answer.read(ANSWER_BYTES_MAX)
        return msgspec.json.decode(content, type=kind)
    except Exception:  # noqa: BLE001 - a shell that completes is no place for errors
        return None
