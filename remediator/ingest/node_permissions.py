"""User JWTs for NATS' auth callout: what a node may publish and subscribe to. Signed with the issuer's key."""

from __future__ import annotations

import base64
import binascii
import hashlib
from collections.abc import Sequence
from typing import Any

import msgspec
from nacl.signing import SigningKey

from vocabulary.messages.nats_protocol import KINDS, node_prefix, upward_subject

_HEADER = {"typ": "JWT", "alg": "ed25519-nkey"}
_ACCOUNT_PREFIX = b"\x00"  # makes the text begin with A
PAYLOAD_BYTES_MAX = -1  # the server's own limit applies
SUBSCRIPTIONS_MAX = 10


class IssuerKey:
    """The Ed25519 key that the servers trust to say what a node may do: an NKey of type account."""

    def __init__(self, seed: bytes) -> None:
        """Args: `seed`: 32 random bytes."""
        self._seed = seed
        self._key = SigningKey(seed)

    @classmethod
    def from_text(cls, text: str) -> IssuerKey:
        """Read the text of `as_text`.

        Raises:
            ValueError: it is no such key.
        """
        try:
            return cls(bytes.fromhex(text))
        except (ValueError, TypeError) as error:
            raise ValueError(f"not an issuer's key: {error}") from error

    def as_text(self) -> str:
        """Return the secret, for a file."""
        return self._seed.hex()

    @property
    def public_key(self) -> str:
        """The public key as NATS writes it: base32 of prefix, key and CRC-16."""
        raw = _ACCOUNT_PREFIX + bytes(self._key.verify_key)
        return base64.b32encode(raw + binascii.crc_hqx(raw, 0).to_bytes(2, "little")).decode().rstrip("=")

    def sign(self, content: bytes) -> bytes:
        """Return the signature, 64 bytes."""
        return bytes(self._key.sign(content).signature)


class CalloutRequest(msgspec.Struct, frozen=True):
    """Who asks to connect, from the server's request. `user` is the node's name, `password` its token."""

    user_nkey: str  # the key that the user JWT must be for
    server_id: str
    user: str = ""
    password: str = ""


class _ServerId(msgspec.Struct, frozen=True):
    id: str


class _ConnectOptions(msgspec.Struct, frozen=True):
    user: str = ""
    password: str = msgspec.field(default="", name="pass")


class _Asked(msgspec.Struct, frozen=True):
    server_id: _ServerId
    user_nkey: str
    connect_opts: _ConnectOptions = _ConnectOptions()


class _Claims(msgspec.Struct, frozen=True):
    nats: _Asked


def read_callout_request(token: bytes) -> CalloutRequest:
    """Read the server's request. It comes on a subject that only the server may publish on, so it is not verified.

    Raises:
        ValueError: it is not such a request.
    """
    try:
        payload = token.split(b".")[1]
        claims = msgspec.json.decode(base64.urlsafe_b64decode(payload + b"=" * (-len(payload) % 4)), type=_Claims)
    except (IndexError, binascii.Error, msgspec.DecodeError) as error:
        raise ValueError(f"not an authorization request: {error}") from error
    asked = claims.nats
    return CalloutRequest(asked.user_nkey, asked.server_id.id, asked.connect_opts.user, asked.connect_opts.password)


def make_callout_response(
    signer: IssuerKey, request: CalloutRequest, *, user_jwt: str = "", error: str = "", now: float
) -> bytes:
    """Return the signed response to the server: a user JWT, or why there is none. `now` in UTC seconds."""
    nats = {"jwt": user_jwt, "type": "authorization_response", "version": 2}
    if error:
        nats = {"error": error, "type": "authorization_response", "version": 2}
    return _sign_claims(
        signer, {"sub": request.user_nkey, "aud": request.server_id, "iat": int(now), "nats": nats}
    ).encode()


def make_node_jwt(
    signer: IssuerKey, request: CalloutRequest, *, cluster: str, account: str, now: float, valid_s: float
) -> str:
    """Return the JWT of a connection that may act for the node `request.user` alone, for `valid_s`."""
    node = request.user
    allowed: Sequence[str] = [upward_subject(cluster, kind, node) for kind in KINDS]
    user = {
        "pub": {"allow": allowed},
        "sub": {"allow": [f"{node_prefix(cluster, node)}.>"]},
        "subs": SUBSCRIPTIONS_MAX,
        "data": -1,
        "payload": PAYLOAD_BYTES_MAX,
        "type": "user",
        "version": 2,
    }
    claims = {
        "sub": request.user_nkey,
        "name": node,
        "aud": account,
        "iat": int(now),
        "exp": int(now + valid_s),
        "nats": user,
    }
    return _sign_claims(signer, claims)


def _sign_claims(signer: IssuerKey, claims: dict[str, Any]) -> str:
    claims = {"iss": signer.public_key, **claims}
    digest = hashlib.sha256(msgspec.json.encode(claims, order="sorted")).digest()
    claims["jti"] = base64.b32encode(digest).decode().rstrip("=")
    signed = f"{_encode_part(_HEADER)}.{_encode_part(claims)}"
    return f"{signed}.{_base64(signer.sign(signed.encode()))}"


def _encode_part(part: dict[str, Any]) -> str:
    return _base64(msgspec.json.encode(part))


def _base64(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")
