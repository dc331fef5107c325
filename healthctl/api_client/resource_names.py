"""Resolves names that people type: unique prefixes of incident ids, and suggestions for mistyped names."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TypeVar
from urllib.parse import quote

from healthctl.api_client.remediator_client import RemediatorClient, RequestRefused
from healthctl.exit_codes import Exit, Failure
from remediator.model.views import IncidentList, NodeList
from vocabulary.identity import require_node_name

T = TypeVar("T")

NEAR_MAX = 3
LISTED_MAX = 5
_WHOLE = re.compile(r"inc-[0-9a-f]{12}", re.ASCII)
NOT_FOUND = 404


def suggest_names(name: str, known: Iterable[str]) -> str:
    """Suggestions for an unknown name, nearest first; empty if none is similar.

    >>> suggest_names("gpu-1", ["gpu-10", "cpu-7"])
    '; did you mean gpu-10?'
    """
    from difflib import get_close_matches  # slow to import, and needed only for typos

    found = get_close_matches(name, list(known), NEAR_MAX, 0.7)
    return f"; did you mean {' or '.join(found)}?" if found else ""


def node_path(name: str) -> str:
    """The API path of a node.

    Raises:
        Failure: not a valid node name.
    """
    try:
        return f"/v1/nodes/{quote(require_node_name(name), safe='')}"
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None


def fetch_node(server: RemediatorClient, name: str, kind: type[T], below: str = "") -> T:
    """Fetch a node.

    Raises:
        Failure: the node is unknown; the message suggests similar names.
    """
    path = node_path(name)
    try:
        return server.get(f"{path}{below}", kind)
    except RequestRefused as refused:
        if refused.status != NOT_FOUND:
            raise
        hint = suggest_names(name, (node.node for node in server.get("/v1/nodes", NodeList).nodes))
        raise RequestRefused(f"{refused.message}{hint}", refused.status) from None


def is_whole_id(text: str) -> bool:
    """Whether `given` is a complete incident id, not a prefix."""
    return _WHOLE.fullmatch(text) is not None


def incident_path(server: RemediatorClient, given: str) -> tuple[str, str]:
    """The complete id of the incident, and its API path.

    Raises:
        Failure: several incidents match, or none.
    """
    whole = given if is_whole_id(given) else complete_incident_id(given, server.get("/v1/incidents", IncidentList))
    return whole, f"/v1/incidents/{quote(whole, safe='')}"


def complete_incident_id(given: str, listed: IncidentList) -> str:
    """The only incident id with this prefix, given with or without ``inc-``; `given` itself if the list is too short to decide.

    Raises:
        Failure: several incidents match, or none does and similar ones exist.
    """
    ids = [each.id for each in listed.incidents]
    if given in ids:
        return given
    fitting = [each for each in ids if given and (each.startswith(given) or each.partition("-")[2].startswith(given))]
    if len(fitting) > 1:
        more = ", …" if len(fitting) > LISTED_MAX else ""
        raise Failure(
            f"{given!r} is ambiguous: {', '.join(fitting[:LISTED_MAX])}{more}; give a longer prefix", Exit.USAGE
        )
    if not fitting and (hint := suggest_names(given, ids)):
        raise RequestRefused(f"no incident {given}{hint}", NOT_FOUND)
    return fitting[0] if fitting else given
