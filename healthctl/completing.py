"""Names for a shell that completes: from the server if it answers at once, else none. Never a word of an error."""

from __future__ import annotations

import os
from typing import TypeVar

import click
import msgspec
from click.shell_completion import CompletionItem

DEADLINE_S = 0.7  # a person waits with a finger on the tab key
SHOWN_MAX = 100

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
    """Nodes whose names begin so, by name."""
    found = _ask(ctx, f"/v1/nodes?limit={SHOWN_MAX}&after={_before(incomplete)}", _Nodes)
    return [each.node for each in found.nodes if each.node.startswith(incomplete)] if found else []


def incident_ids(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:  # noqa: ARG001 - same
    """Incidents whose ids begin so, newest first, each with its title."""
    from healthctl.output import clean

    found = _ask(ctx, "/v1/incidents", _Incidents)
    fitting = [each for each in found.incidents if each.id.startswith(incomplete)] if found else []
    return [CompletionItem(each.id, help=clean(each.title)) for each in fitting[:SHOWN_MAX] if each.id.isprintable()]


def _before(text: str) -> str:
    """What stands just before every name that begins with `text`, quoted: the server lists what comes after."""
    from urllib.parse import quote

    return quote(f"{text[:-1]}{chr(max(ord(text[-1]) - 1, 0))}~" if text else "", safe="")


def _ask(ctx: click.Context, path: str, kind: type[T]) -> T | None:
    """The answer, or None for whatever reason."""
    import ssl
    from urllib.request import Request, urlopen

    try:
        url = ctx.params.get("url") or os.environ["HEALTHCTL_SERVER"]
        token_file = ctx.params.get("token_file") or os.environ["HEALTHCTL_TOKEN_FILE"]
        ca_file = ctx.params.get("ca_file") or os.environ.get("HEALTHCTL_CA_FILE")
        if not str(url).startswith(("http://", "https://")):
            return None
        with open(token_file, encoding="ascii") as file:  # noqa: PTH123 - whatever was given
            headers = {"Authorization": f"Bearer {file.read().strip()}"}
        trust = ssl.create_default_context(cafile=ca_file) if str(url).startswith("https:") else None
        request = Request(f"{str(url).rstrip('/')}{path}", headers=headers)  # noqa: S310 - http(s) alone, above
        with urlopen(request, timeout=DEADLINE_S, context=trust) as answer:  # noqa: S310 - same
            return msgspec.json.decode(answer.read(), type=kind)
    except Exception:  # noqa: BLE001 - a shell that completes is no place for errors
        return None
