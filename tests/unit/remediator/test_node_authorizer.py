"""Who may connect to NATS: the leader decides; what it decided holds while none answers; the permissions name one node."""

from __future__ import annotations

import asyncio
import base64
import json
from typing import Any, cast

import pytest
from nacl.signing import VerifyKey

from remediator.ingest.ingest_config import IngestConfig, NatsSettings
from remediator.ingest.leader_client import LeaderClient, LeaderUnavailable
from remediator.ingest.node_authorizer import NodeAuthorizer
from remediator.ingest.node_permissions import (
    CalloutRequest,
    IssuerKey,
    make_callout_response,
    make_node_jwt,
    read_callout_request,
)
from vocabulary.messages.nats_protocol import escape_token, unescape_token

KEY = IssuerKey(bytes(32))
NATS = NatsSettings(servers=("nats://x",), password_file="p", issuer_file="i")
CONFIG = IngestConfig(controllers=("http://x",), token_file="t", nats=NATS)


class Leading:
    """Admits one token of each node, unless away."""

    away = False

    def admits(self, node: str, token: str) -> bool:
        if self.away:
            raise LeaderUnavailable("away")
        return token == f"good-{node}"


def asking(node: str, token: str) -> CalloutRequest:
    return CalloutRequest("U1", "N1", node, token)


def claims_of(jwt: str) -> dict[str, Any]:
    signed, _, signature = jwt.rpartition(".")
    raw = base64.b32decode(KEY.public_key + "=" * (-len(KEY.public_key) % 8))
    VerifyKey(raw[1:33]).verify(signed.encode(), base64.urlsafe_b64decode(signature + "=="))
    payload = signed.split(".")[1]
    found: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=="))
    return found


def test_the_leader_decides_and_what_it_admitted_holds_while_it_is_away() -> None:
    async def ask() -> list[str]:
        leader = Leading()
        authorizer = NodeAuthorizer(CONFIG, cast("LeaderClient", leader), KEY)
        known, new = asking("n1", "good-n1"), asking("n2", "good-n2")
        told = [await authorizer.find_refusal(each) for each in (known, asking("n1", "bad"), asking("a b", "good"))]
        leader.away = True
        return told + [await authorizer.find_refusal(each) for each in (known, new, asking("n1", "bad"))]

    told = asyncio.run(ask())
    assert told[0] == told[3] == "", "admitted, and remembered"
    assert "does not admit this token" in told[1]
    assert "not a node name" in told[2]
    assert "cannot be checked" in told[4], "never seen"
    assert "cannot be checked" in told[5], "another token of a known node"


def test_a_token_that_the_leader_rejects_is_forgotten() -> None:
    async def ask() -> str:
        leader = Leading()
        authorizer = NodeAuthorizer(CONFIG, cast("LeaderClient", leader), KEY)
        await authorizer.find_refusal(asking("n1", "good-n1"))
        leader.admits = lambda _node, _token: False  # type: ignore[method-assign]  # revoked
        await authorizer.find_refusal(asking("n1", "good-n1"))
        leader.admits = Leading.admits.__get__(leader)  # type: ignore[method-assign]  # as before
        leader.away = True
        return await authorizer.find_refusal(asking("n1", "good-n1"))

    assert "cannot be checked" in asyncio.run(ask())


def test_the_permissions_name_one_node_and_end() -> None:
    jwt = make_node_jwt(KEY, asking("n.1", "t"), cluster="c d", account="$G", now=100.0, valid_s=60.0)
    claims = claims_of(jwt)
    assert (claims["sub"], claims["exp"], claims["iss"], claims["aud"]) == ("U1", 160, KEY.public_key, "$G")
    allowed = [*claims["nats"]["pub"]["allow"], *claims["nats"]["sub"]["allow"]]
    assert {subject.split(".")[1] for subject in allowed} == {"c=20d"}
    assert {subject.split(".")[3] for subject in allowed} == {"n=2E1"}
    response = claims_of(make_callout_response(KEY, asking("n.1", "t"), error="no", now=1.0).decode())
    assert response["nats"]["error"] == "no"
    assert "jwt" not in response["nats"]


@pytest.mark.parametrize("content", [b"", b"a", b"a.b.c", b"e30.e30.x", b"\xff.\xff.\xff"])
def test_what_is_no_request_is_a_declared_error(content: bytes) -> None:
    with pytest.raises(ValueError, match="not an authorization request"):
        read_callout_request(content)


@pytest.mark.parametrize("name", ["n1", "gpu-1.rack_2", "a b", "Ü*>", "="])
def test_a_token_is_reversible(name: str) -> None:
    token = escape_token(name)
    assert not set(token) & set(". *>")
    assert unescape_token(token) == name
