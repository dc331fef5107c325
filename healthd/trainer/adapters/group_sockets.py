"""The TCP connections of a process group that has lost a rank: how a rank that waits in one of them gets free.

Gloo has no abort that reaches a thread which waits for a frozen peer. Shutting its connections down does: the collective
fails at once. The connections are those that this process has made with the group's hosts since the group began.
"""

from __future__ import annotations

import contextlib
import ipaddress
import os
import socket
from collections.abc import Collection
from pathlib import Path
from typing import NamedTuple

_ESTABLISHED = "01"  # of include/net/tcp_states.h in the kernel


class TcpConnection(NamedTuple):
    """One established TCP connection, as /proc/net/tcp has it."""

    inode: int
    local_port: int
    remote_host: str


def list_open_sockets() -> dict[int, int]:
    """This process' sockets: inode → descriptor."""
    found = {}
    for entry in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):
            target = str(entry.readlink())
            if target.startswith("socket:["):
                found[int(target[8:-1])] = int(entry.name)
    return found


def shut_down_connections(*, but: Collection[int], served_port: int, hosts: Collection[str]) -> int:
    """Shut down this process' connections with `hosts`; how many that were.

    Args:
        but: inodes of sockets that stay as they are.
        served_port: connections that came to this port of ours stay, too: a server's, whose clients may be others by now.
        hosts: addresses.
    """
    count = 0
    sockets = list_open_sockets()
    for each in list_connections():
        descriptor = sockets.get(each.inode)
        concerned = each.remote_host in hosts and each.local_port != served_port and each.inode not in but
        if descriptor is not None and concerned and _shut_down_socket(descriptor, each.inode):
            count += 1
    return count


def list_connections() -> list[TcpConnection]:
    """Every established TCP connection of this network namespace."""
    found = []
    for table in ("/proc/self/net/tcp", "/proc/self/net/tcp6"):
        with contextlib.suppress(OSError), Path(table).open(encoding="ascii") as lines:
            next(lines, None)
            for line in lines:
                words = line.split()
                if words[3] == _ESTABLISHED:
                    local, remote = words[1].rpartition(":"), words[2].rpartition(":")
                    found.append(TcpConnection(int(words[9]), int(local[2], 16), _parse_address(remote[0])))
    return found


def _parse_address(text: str) -> str:
    """An address as the kernel prints it: words of four bytes in the machine's order."""
    raw = bytes.fromhex(text)
    packed = b"".join(raw[at : at + 4][::-1] for at in range(0, len(raw), 4))
    address = ipaddress.ip_address(packed)
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)


def _shut_down_socket(descriptor: int, inode: int) -> bool:
    """The descriptor may have been closed and given to another file meanwhile, so a copy of it is looked at first."""
    with contextlib.suppress(OSError):
        copy = os.dup(descriptor)
        if os.fstat(copy).st_ino != inode:
            os.close(copy)
            return False
        with socket.socket(fileno=copy) as connection:
            connection.shutdown(socket.SHUT_RDWR)
            return True
    return False
