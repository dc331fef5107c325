"""NATS between nodes and controller: what a node says arrives, what is ordered comes back, and nobody speaks for another."""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import nats
import pytest
from healthd_node import Node, eventually
from msgspec.structs import replace
from nats.aio.client import Client
from nats.errors import Error as NatsError
from nats_site import NatsSite, SmallNode, end, make_change

from healthd.controller.controller_client import ControllerDenied, ControllerError, RequestRejected
from vocabulary.finding import Severity
from vocabulary.messages.heartbeat import build_heartbeat, encode_heartbeat
from vocabulary.messages.nats_protocol import NodeMessage, encode_envelope, node_prefix, upward_subject

OPTIONAL = (
    "import sys, healthd.daemon, healthd.service_threads, remediator.main, remediator.serving.replica, healthctl.main"
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NatsSite]:
    """A site that runs; a test leaves it so."""
    site = NatsSite(tmp_path_factory.mktemp("site"))
    site.start()
    yield site
    site.close()


def connected(site: NatsSite, name: str) -> SmallNode:
    """A node whose first report was answered."""
    node = SmallNode(site, name)
    eventually(lambda: answered(node), lambda: f"a reply for {name}; ingest: {site.log('ingest.log')}")
    return node


def answered(node: SmallNode) -> bool:
    try:
        return node.client.report(node.report()).epoch > 0
    except ControllerError:
        return False


def test_a_node_reports_and_obeys_over_nats_alone(
    site: NatsSite, make_node: Callable[..., Node], tmp_path: Path
) -> None:
    node = make_node(kernel_log=tmp_path / "kern.log")
    document = json.loads(node.config.read_text())
    node.config.write_text(json.dumps({**document, "remediator": site.node_section(node.name)}))
    node.start()
    node.xid(79, gpu=3)
    controller = site.controller

    def done() -> list[dict[str, object]]:
        actions = (
            controller.call("GET", "/v1/actions?state=all", "ann").json().get("actions", ())
        )  # 429: asked too often
        return [
            action
            for action in actions
            if (action["node"], action["verb"], action["state"]) == (node.name, "collect_evidence", "succeeded")
        ]

    eventually(done, lambda: f"it obeyed an order; {node.log()} {site.log('ingest.log')}")


def test_nobody_speaks_or_listens_for_another_node(site: NatsSite) -> None:
    first, second = connected(site, "n1"), connected(site, "n2")
    heard: list[str] = []
    refused: list[str] = []

    async def intrude() -> None:
        async def note(error: Exception) -> None:
            refused.append(str(error).lower())

        token = site.controller.tokens["n1"]
        client = await nats.connect(site.url, user="n1", password=token, allow_reconnect=False, error_cb=note)

        async def listen(message: object) -> None:
            heard.append(str(message))

        for subject in (f"{node_prefix('default', 'n2')}.>", "gpuhealth.>", "$SYS.>", "$JS.>", ">"):
            await client.subscribe(subject, cb=listen)
        forged = encode_envelope(NodeMessage("x", b"{}"))
        for subject in (
            upward_subject("default", "report", "n2"),
            f"{node_prefix('default', 'n2')}.orders",
            "$JS.API.INFO",
        ):
            await client.publish(subject, forged)
        await client.flush()
        await asyncio.to_thread(second.client.report, second.report(make_change("n2", 1)))
        await client.flush()
        await client.close()
        stranger = Client()
        with pytest.raises(NatsError):
            await stranger.connect(site.url, user="n2", password=token, allow_reconnect=False, error_cb=note)
        await stranger.close()

    asyncio.run(intrude())
    assert not heard
    assert len([words for words in refused if "permissions violation for publish" in words]) == 3
    assert len([words for words in refused if "permissions violation for subscription" in words]) == 5
    assert "malformed" not in site.log("ingest.log")
    first.close()
    second.close()


def test_a_malformed_message_is_dropped_and_an_invalid_one_is_answered(site: NatsSite) -> None:
    node = connected(site, "n1")
    with pytest.raises(ControllerError, match="Report: JSON is malformed"):
        node.client._send("report", b"nonsense", 30.0)
    with pytest.raises(ControllerError, match="may not report on node n2"):
        node.client.report(node.report(make_change("n2", 1)))
    with pytest.raises(RequestRejected, match="Heartbeat: "):
        node.client.heartbeat(b"x")
    base = node.report()
    assert node.client.report(base).base == base.seq
    beat = build_heartbeat(base, replace(base, seq=base.seq + 1), {})
    packed = None if beat is None else encode_heartbeat(beat)
    assert packed is not None
    assert node.client.heartbeat(packed).base == base.seq
    asyncio.run_coroutine_threadsafe(
        node.connection._client.publish(upward_subject("default", "heartbeat", "n1"), b"no envelope"),
        node.connection._loop,
    ).result(30)
    eventually(lambda: "is dropped" in site.log("ingest.log"), "the malformed message was dropped")
    eventually(lambda: asyncio.run(stored(site)) == 0, "and is not delivered again")
    assert node.client.report(node.report(make_change("n1", 1))).acked_seq == 1
    node.close()


async def stored(site: NatsSite) -> int:
    """Messages in the stream."""
    password = (site.place / "nats/ingest.password").read_text().strip()
    client = await nats.connect(site.url, user="ingest", password=password)
    found = await client.jetstream().stream_info("gpuhealth-default")
    await client.close()
    return found.state.messages


def test_a_wrong_token_is_called_so(site: NatsSite) -> None:
    (site.place / "n9.token").write_text("ghd_wrong")
    node = SmallNode(site, "n9")
    denied = eventually(lambda: denial(node), "it is denied")
    assert "401: this token is unknown" in denied
    node.close()


def denial(node: SmallNode) -> str:
    try:
        node.client.report(node.report())
    except ControllerDenied as error:
        return str(error)
    except ControllerError:
        pass
    return ""


def test_a_revoked_node_is_refused_on_the_connection_that_it_has(site: NatsSite) -> None:
    node = connected(site, "r1")
    command = [sys.executable, "-m", "remediator", "token", "revoke", "--node", "r1", "--config"]
    subprocess.run([*command, str(site.controller.config)], check=True)

    def refusal() -> str:
        try:
            node.client.report(node.report())
        except ControllerError as error:
            return str(error)
        return ""

    assert "has no valid token" in eventually(refusal, "it was refused")
    node.close()


def test_a_fatal_finding_takes_the_direct_way_while_nats_is_down(site: NatsSite) -> None:
    node = connected(site, "n1")
    assert site.server is not None
    end(site.server)
    with pytest.raises(ControllerError, match="nats://"):
        node.client.report(node.report(make_change("n1", 1)))
    assert node.client.report(node.report(make_change("n1", 2, Severity.FATAL))).acked_seq == 2
    assert node.client.orders((), 0).orders is not None
    node.close()
    site.start_server()


def test_sites_without_nats_do_not_load_it() -> None:
    code = f"{OPTIONAL}; assert not {{'nats', 'nacl'}} & sys.modules.keys()"
    subprocess.run([sys.executable, "-c", code], check=True)
