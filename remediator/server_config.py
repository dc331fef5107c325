"""What the configuration says about the door: limits for callers, TLS, and who may speak in the clear."""

from __future__ import annotations

import ipaddress
from typing import Annotated

import msgspec

Positive = Annotated[float, msgspec.Meta(gt=0)]
Count = Annotated[int, msgspec.Meta(ge=1)]


class AccessLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one credential may ask for, and what an address may get wrong. Rates are per second."""

    node_per_s: Positive = 20.0  # requests of one node
    node_burst: Count = 100  # at once
    news_per_s: Positive = 200.0  # of one node: findings raised, changed or cleared; more is asked for later
    news_burst: Count = 3000  # a full report goes through beyond it, and is owed
    person_per_s: Positive = 20.0  # requests of one person's token
    person_burst: Count = 200  # at once
    unknown_per_s: Positive = 1.0  # requests without a good token, of one address
    unknown_burst: Count = 30  # at once
    connections_per_node: Count = 16  # healthd keeps two
    connections_per_person: Count = 64  # at once
    polls_per_node: Count = 4  # requests of one node that stay open
    streams: Count = 64  # of events, in all
    streams_per_person: Count = 4  # of events
    body_s: Positive = 30.0  # for a request's body to arrive
    headers_s: Positive = 10.0  # for its head, and for a TLS handshake
    strangers: Count = 30_000  # connections on which no good token was shown yet; a fleet may come back at once
    strangers_per_address: Count = 1000  # the same, from one address


class TlsSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The server's certificate, and what is asked of callers. Files are PEM, read again at SIGHUP."""

    certificate: str  # PEM, with its chain
    key: str  # its key
    client_ca: str = ""  # who signs clients' certificates
    client_certificate: str = "none"  # none, optional, required
    nodes_by_certificate: bool = False  # a node's token counts only with a certificate that names the node

    def __post_init__(self) -> None:
        if self.client_certificate not in {"none", "optional", "required"}:
            raise ValueError(f"client_certificate is '{self.client_certificate}'; known: none, optional, required")
        if (self.client_certificate != "none") != bool(self.client_ca):
            raise ValueError("client_ca and client_certificate (optional, required) belong together")
        if self.nodes_by_certificate and self.client_certificate == "none":
            raise ValueError("nodes_by_certificate needs client_certificate: optional or required")


class ProxyRoles(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which groups of the proxy's users are what here; `*` is everybody it lets through. The highest role counts."""

    viewer: tuple[str, ...] = ()  # groups that may read
    operator: tuple[str, ...] = ()  # groups that may act
    admin: tuple[str, ...] = ()  # groups that may also make tokens


class TrustedProxy(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A reverse proxy that knows its users. Its headers count only on connections from its own addresses."""

    addresses: tuple[str, ...]  # or networks, as 10.0.0.0/28
    roles: ProxyRoles  # by the proxy's groups
    user_header: str = "X-Forwarded-User"  # who it is
    groups_header: str = "X-Forwarded-Groups"  # the groups, between commas

    def __post_init__(self) -> None:
        if not self.addresses:
            raise ValueError("addresses is empty: name the proxy's own, e.g. 10.0.0.5")
        for address in self.addresses:
            try:
                network = ipaddress.ip_network(address)
            except ValueError as error:
                raise ValueError(f"addresses: {error}") from error
            if network.prefixlen == 0:
                raise ValueError(f"addresses: {address} is everybody, and everybody could name themselves")


class WebSettings(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The pages: whether there are any, how long a login lasts, and who may say who somebody is."""

    enabled: bool = True  # false: no pages, only the API
    session_h: Annotated[float, msgspec.Meta(gt=0, le=24 * 31)] = 12.0  # how long a login lasts
    url: Annotated[str, msgspec.Meta(pattern="^(https?://.+)?$", max_length=150)] = (
        ""  # where people reach this replica; the others' pages link to it; with https:// a login is kept for https alone
    )
    proxy: TrustedProxy | None = None  # none: people log in here


def is_loopback(host: str) -> bool:
    """Whether nobody outside this machine can reach an address."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False
