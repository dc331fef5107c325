"""Sends a preflight document to this node's healthd, which creates findings. Only root, or healthd's own user, may send."""

from __future__ import annotations

import contextlib
import http.client
import json
import socket
from typing import Any

from vocabulary.daemon_socket import SOCKET

PAGE = "/v1/preflight"
TIMEOUT_S = 15.0
ANSWER_BYTES_MAX = 1 << 16


class DeliveryError(Exception):
    """Healthd rejected the document. The message says why, and what to do."""


def deliver_to_healthd(document: bytes, path: str = SOCKET, node: str = "") -> str:
    """Post a document to healthd's UNIX socket; returns healthd's reply. `{node}` in `path` is this node's name.

    Raises:
        DeliveryError: healthd rejected it.
    """
    path = path.replace("{node}", node)
    connection = http.client.HTTPConnection("localhost", timeout=TIMEOUT_S)
    try:
        connection.sock = socket.socket(socket.AF_UNIX)
        connection.sock.settimeout(TIMEOUT_S)
        connection.sock.connect(path)
        with contextlib.suppress(BrokenPipeError):  # rejected before all of it was read: the reply says why
            connection.request("POST", PAGE, body=document, headers={"Content-Type": "application/json"})
        response = connection.getresponse()
        said: Any = json.loads(response.read(ANSWER_BYTES_MAX))
        if response.status != http.client.OK:
            raise DeliveryError(f"healthd at {path} rejected the document: {said.get('error')}; {said.get('todo')}")
        return f"healthd recorded it: {said.get('says')}"
    except (OSError, http.client.HTTPException, ValueError, AttributeError) as error:
        raise DeliveryError(f"cannot reach healthd at {path}: {error}; start it, or give --socket") from None
    finally:
        connection.close()
