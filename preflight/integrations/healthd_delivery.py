"""Sends a preflight document to this node's healthd, which creates findings. Only root, or healthd's own user, may send."""

from __future__ import annotations

import json
from typing import Any

from vocabulary.daemon_socket import SOCKET, NoResponseError, call_daemon

PAGE = "/v1/preflight"
TIMEOUT_S = 15.0


class DeliveryError(Exception):
    """Healthd rejected the document. The message says why, and what to do."""


def deliver_to_healthd(document: bytes, path: str = SOCKET, node: str = "") -> str:
    """Post a document to healthd's UNIX socket; returns healthd's reply. `{node}` in `path` is this node's name.

    Raises:
        DeliveryError: healthd rejected it.
    """
    path = path.replace("{node}", node)
    try:
        status, answer = call_daemon(path, PAGE, TIMEOUT_S, document)
        said: Any = json.loads(answer)
        if status != 200:
            raise DeliveryError(f"healthd at {path} rejected the document: {said.get('error')}; {said.get('todo')}")
        return f"healthd recorded it: {said.get('says')}"
    except NoResponseError as error:
        raise DeliveryError(f"cannot reach healthd at {error}, or give --socket") from None
    except (ValueError, AttributeError) as error:
        raise DeliveryError(f"cannot reach healthd at {path}: {error}; start it, or give --socket") from None
