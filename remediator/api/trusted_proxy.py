"""Client addresses behind the trusted reverse proxy. Pure."""

from __future__ import annotations

import ipaddress
from collections.abc import Sequence
from functools import cache

from remediator.server_config import TrustedProxy

FORWARDED = "x-forwarded-for"
HOPS_MAX = 32  # examined, from the nearest on

_Address = ipaddress.IPv4Address | ipaddress.IPv6Address
_Network = ipaddress.IPv4Network | ipaddress.IPv6Network


def is_proxy_address(proxy: TrustedProxy | None, address: str) -> bool:
    """Return whether a connection from `address` is the proxy's."""
    there = _parse_hop_address(address)
    return proxy is not None and there is not None and _is_in_networks(proxy, there)


def client_behind_proxy(proxy: TrustedProxy | None, peer: str, forwarded: Sequence[str]) -> str:
    """Return the origin of a request sent by `peer`: the nearest hop that is not one of our proxies.

    Only the trusted proxy's header counts, and only what it and its like have added: the client may have invented what
    is further left. Without a valid address there, it is `peer`.

    Args:
        proxy: the trusted one, if there is one.
        peer: the address of the connection.
        forwarded: every `X-Forwarded-For` of the request, in their order.
    """
    if proxy is None or not is_proxy_address(proxy, peer):
        return peer
    found = peer
    for hop in reversed(",".join(forwarded).split(",")[-HOPS_MAX:]):
        there = _parse_hop_address(hop)
        if there is None:
            break
        found = str(there)
        if not _is_in_networks(proxy, there):
            break
    return found


def _parse_hop_address(text: str) -> _Address | None:
    """Parse a hop's address: 192.0.2.1, 192.0.2.1:80, 2001:db8::1 or [2001:db8::1]:80."""
    bare = text.strip()
    if bare.startswith("["):
        bare = bare[1:].partition("]")[0]
    elif bare.count(":") == 1:
        bare = bare.partition(":")[0]
    try:
        address = ipaddress.ip_address(bare.partition("%")[0])  # without the scope, which may be any text
    except ValueError:
        return None
    return getattr(address, "ipv4_mapped", None) or address


def _is_in_networks(proxy: TrustedProxy, address: _Address) -> bool:
    return any(address in network for network in _parse_networks(proxy.addresses))


@cache
def _parse_networks(addresses: tuple[str, ...]) -> tuple[_Network, ...]:
    return tuple(ipaddress.ip_network(address) for address in addresses)
