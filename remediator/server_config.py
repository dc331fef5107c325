"""Configuration of the server: limits for callers, TLS, and who may connect without it."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class AccessLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Limits per credential, and for failed attempts per address. Rates are per second."""

    node_per_s: Positive = 20.0  # requests per node
    node_burst: Count = 100  # requests at once
    news_per_s: Positive = 200.0  # findings raised, changed or cleared per node; the rest is requested later
    news_burst: Count = 3000  # a full report passes beyond the rate and is charged afterwards
    person_per_s: Positive = 20.0  # requests per user token
    person_burst: Count = 200  # requests at once
    unknown_per_s: Positive = 1.0  # requests without a valid token, per address
    unknown_burst: Count = 30  # requests at once
    connections_per_node: Count = 16  # healthd keeps two
    connections_per_person: Count = 64  # at once
    polls_per_node: Count = 4  # long-polling requests per node
    streams: Count = 64  # event streams in total
    streams_per_person: Count = 4  # event streams
    body_s: Positive = 30.0  # to receive a request's body
    headers_s: Positive = 10.0  # to receive a request's headers, and for a TLS handshake
    strangers: Count = 30_000  # connections that have not shown a valid token yet; a whole fleet may reconnect at once
    strangers_per_address: Count = 1000  # the same, per address


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The server's certificate, and what clients must present. Files are PEM and are reloaded on SIGHUP."""

    certificate: str  # PEM, with its chain
    key: str  # private key
    client_ca: str = ""  # CA of client certificates
    client_certificate: str = "none"  # none, optional or required
    nodes_by_certificate: bool = False  # a node's token is valid only with a certificate that names the node

    def __post_init__(self) -> None:
        if self.client_certificate not in {"none", "optional", "required"}:
            raise ValueError(f"client_certificate is '{self.client_certificate}'; known: none, optional, required")
        if (self.client_certificate != "none") != bool(self.client_ca):
            raise ValueError("client_ca and client_certificate (optional, required) belong together")
        if self.nodes_by_certificate and self.client_certificate == "none":
            raise ValueError("nodes_by_certificate needs client_certificate: optional or required")


class ProxyRoles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Maps the proxy's groups to roles; `*` matches every user. The highest role wins."""

    viewer: tuple[str, ...] = ()  # groups that may read
    operator: tuple[str, ...] = ()  # groups that may act
    admin: tuple[str, ...] = ()  # groups that may also create tokens


class TrustedProxy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reverse proxy that authenticates users. Its headers count only on connections from its own addresses."""

    addresses: tuple[str, ...]  # addresses or networks, e.g. 10.0.0.0/28
    roles: ProxyRoles  # roles by group of the proxy
    user_header: str = "X-Forwarded-User"  # header with the user's name
    groups_header: str = "X-Forwarded-Groups"  # header with the user's groups, comma-separated

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("addresses is empty: give the proxy's address, e.g. 10.0.0.5")
        for address in self.addresses:
            try:
                network = ipaddress.ip_network(address)
            except ValueError as error:
                raise ValueError(f"addresses: {error}") from error
            if network.prefixlen == 0:
                raise ValueError(f"addresses: {address} matches every client, so any client could forge its identity")


class WebSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The web pages: whether they are served, how long a login lasts, and which proxy may authenticate users."""

    enabled: bool = True  # false: no pages, only the API
    session_h: Annotated[float, msgspec.Meta(gt=0, le=24 * 31)] = 12.0  # how long a login lasts
    url: Annotated[str, msgspec.Meta(pattern="^(https?://.+)?$", max_length=150)] = (
        ""  # public URL of this replica, to which the others' pages link; with https:// the login cookie is https-only
    )
    proxy: TrustedProxy | None = None  # none: users log in here


def is_loopback(host: str) -> bool:
    """Return whether the address is reachable only from this machine."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
