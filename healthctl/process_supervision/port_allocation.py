"""Finds ports for programs that cannot inherit an open socket."""

from __future__ import annotations

import socket


def find_free_ports(count: int) -> list[int]:
    """Distinct TCP ports that are free now."""
    sockets = [socket.socket() for _ in range(count)]
    try:
        for each in sockets:
            each.bind(("127.0.0.1", 0))
        return [int(each.getsockname()[1]) for each in sockets]
    finally:
        for each in sockets:
            each.close()


def is_port_free(port: int) -> bool:
    """Whether no program listens there on 127.0.0.1."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True
