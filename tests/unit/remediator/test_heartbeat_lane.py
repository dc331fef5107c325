"""Heartbeats that pass the application by: the same answers, and whatever is odd takes the usual way."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
import uvicorn
from msgspec.structs import replace

from healthd.config import RemediatorConfig
from healthd.controller.controller_client import ControllerClient
from remediator.api.api_application import HANDLERS
from remediator.api.fast_path import FastPathApplication
from remediator.api.heartbeat_lane import HeartbeatLane
from remediator.api.route_table import ENDPOINTS
from remediator.model.credentials import Role
from remediator.serving.http_protocol import LANE_BYTES_MAX, LANE_REQUEST, BoundedHttpProtocol
from tests.nodes.in_memory_connection import Wire
from tests.unit.remediator.api.in_process_controller import NO_LIMITS, Inside
from tests.unit.vocabulary.test_heartbeat import BASE
from vocabulary.messages.heartbeat import build_heartbeat, encode_heartbeat
from vocabulary.messages.wire import ReportReply


class Connection:
    """A connection of a real protocol to a leader in this process. `usual` counts requests to its application."""

    def __init__(self, centre: Inside, *, lane: bool = True, names: tuple[str, ...] = ()) -> None:
        self.usual = 0
        app = FastPathApplication(centre.app, ENDPOINTS, HANDLERS)

        async def counted(scope: Any, receive: Any, send: Any) -> None:
            self.usual += 1
            await app(scope, receive, send)

        config = uvicorn.Config(counted, lifespan="off", log_config=None, access_log=False, ws="none")
        config.load()
        self.wire = Wire()
        self.protocol = BoundedHttpProtocol(config, uvicorn.Server(config).server_state, {})
        if lane:
            answer = HeartbeatLane(centre.service).answer
            self.protocol.lane = lambda: answer
        self.protocol.connection_made(self.wire)
        self.protocol.certificate_names = names

    async def says(self, *parts: bytes) -> list[tuple[int, bytes]]:
        """The status and the body of each answer to these bytes."""
        del self.wire.written[:]
        for part in parts:
            self.protocol.data_received(part)
        for _ in range(2000):
            await asyncio.sleep(0.001)
            if self.protocol.idle:
                break
        return list(_answers(bytes(self.wire.written)))


def _answers(written: bytes) -> Iterator[tuple[int, bytes]]:
    while written:
        head, _, rest = written.partition(b"\r\n\r\n")
        fields = dict(line.lower().split(b": ", 1) for line in head.split(b"\r\n")[1:])
        length = int(fields[b"content-length"])
        yield int(head.split()[1]), rest[:length]
        written = rest[length:]


def heartbeat(seq: int, base: int = 7) -> bytes:
    built = build_heartbeat(BASE, replace(BASE, seq=seq, sent_at=200.0), {})
    assert built is not None
    packed = encode_heartbeat(replace(built, base=base))
    assert packed is not None
    return packed


def request(token: str, body: bytes, path: str = "/v1/nodes/n1/heartbeat", length: int | None = None) -> bytes:
    """As healthd's client sends it."""
    return (
        f"POST {path} HTTP/1.1\r\nHost: centre:8080\r\nAccept-Encoding: identity\r\n"
        f"Content-Length: {len(body) if length is None else length}\r\nAuthorization: Bearer {token}\r\n"
        "Content-Type: application/msgpack\r\n\r\n"
    ).encode() + body


@pytest.fixture
def centre(tmp_path: Path) -> Iterator[Inside]:
    found = Inside(tmp_path)
    yield found
    found.close()


def reported(centre: Inside) -> Inside:
    reply = centre.call("POST", "/v1/nodes/n1/report", "n1", msgspec.json.encode(BASE))
    assert msgspec.json.decode(reply.body, type=ReportReply).base == 7
    return centre


def test_a_heartbeat_does_not_reach_the_application(centre: Inside) -> None:
    async def talk() -> None:
        connection = Connection(reported(centre))
        ((status, body),) = await connection.says(request(centre.token["n1"], heartbeat(8)))
        assert (status, msgspec.json.decode(body, type=ReportReply).base) == (200, 7)
        assert connection.usual == 0
        entry = centre.service.report_registry.get("n1")
        assert entry is not None
        assert (entry.seq, entry.sent_at) == (8, 200.0)
        assert connection.protocol.server_state.total_requests == 1

    asyncio.run(talk())


@pytest.mark.parametrize("node", ["n1", "gpu-0471.example.org"])
def test_it_takes_what_healthd_sends(tmp_path: Path, node: str) -> None:
    (tmp_path / "token").write_text("ghd_secret\n")
    came = bytearray()
    listener = socket.create_server(("127.0.0.1", 0))

    def serve() -> None:
        connection, _ = listener.accept()
        with connection:
            while (head := LANE_REQUEST.match(came)) is None or len(came) < head.end() + int(head[2]):
                came.extend(connection.recv(1 << 16) or b"closed")
            connection.sendall(b'HTTP/1.1 200 OK\r\ncontent-length: 25\r\n\r\n{"acked_seq":0,"epoch":1} ')

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    config = RemediatorConfig(url=f"http://127.0.0.1:{listener.getsockname()[1]}", token_file=tmp_path / "token")
    client = ControllerClient(config, node)
    assert client.heartbeat(heartbeat(8)) == ReportReply(0, 1)
    thread.join(30)
    client.close()
    listener.close()
    head = LANE_REQUEST.match(came)
    assert head is not None
    assert (head[1], head[3], bytes(came[head.end() :])) == (node.encode(), b"ghd_secret", heartbeat(8))


def test_wherever_a_request_is_cut_its_answer_is_the_same(centre: Inside) -> None:
    async def talk() -> None:
        connection = Connection(reported(centre))
        for seq, place in enumerate(range(1, len(request(centre.token["n1"], heartbeat(8))), 7), 8):
            whole = request(centre.token["n1"], heartbeat(seq))
            ((status, _),) = await connection.says(whole[:place], whole[place:])
            entry = centre.service.report_registry.get("n1")
            assert entry is not None
            assert (status, entry.seq) == (200, seq), place

    asyncio.run(talk())


def odd_requests(token: dict[str, str]) -> dict[str, bytes]:
    good, mine = heartbeat(50), token["n1"]
    return {
        "another node's token": request(token["n2"], good),
        "an operator's token": request(token["ann"], good),
        "an unknown token": request("ghd_none", good),
        "an unknown report": request(mine, heartbeat(50, base=3)),
        "no heartbeat": request(mine, b"{}"),
        "nothing": request(mine, b""),
        "a name that is escaped": request(mine, good, "/v1/nodes/n%31/heartbeat"),
        "a query": request(mine, good, "/v1/nodes/n1/heartbeat?a=b"),
        "another order of headers": request(mine, good).replace(
            b"Accept-Encoding: identity\r\n", b"", 1
        ),
        "a transfer coding": request(mine, good).replace(
            b"Accept-Encoding: identity", b"Transfer-Encoding: chunked", 1
        ),
        "two lengths": request(mine, good).replace(b"Content-Length", b"Content-Length: 5\r\nContent-Length", 1),
        "a token in a folded line": request(mine, good).replace(b"Bearer ", b"Bearer\r\n ", 1),
        "longer than the lane takes": request(mine, b"x" * (LANE_BYTES_MAX + 10)),
        "two at once": request(mine, good) + request(mine, heartbeat(51)),
        "a report behind it": request(mine, good) + b"GET /livez HTTP/1.1\r\nHost: x\r\n\r\n",
        "a shorter length": request(mine, good, length=len(good) - 3),
    }  # fmt: skip


def test_what_is_odd_is_answered_as_without_the_lane(centre: Inside) -> None:
    async def talk() -> None:
        reported(centre)
        for case, content in odd_requests(centre.token).items():
            plain, short = Connection(centre, lane=False), Connection(centre)
            expected = await plain.says(content)
            assert await short.says(content) == expected, case
            assert short.wire.closed == plain.wire.closed, case
            assert short.usual == plain.usual, case

    asyncio.run(talk())


def test_limits_and_certificates_hold_on_the_lane_too(tmp_path: Path) -> None:
    limits = replace(NO_LIMITS, node_per_s=0.001, node_burst=3, connections_per_node=1)
    centre = reported(Inside(tmp_path, limits=limits))

    async def talk() -> None:
        first = Connection(centre)
        assert [s for s, _ in await first.says(request(centre.token["n1"], heartbeat(8)))] == [200]
        first.protocol.seen = lambda _whose, _most: False
        assert [s for s, _ in await first.says(request(centre.token["n1"], heartbeat(9)))] == [200]
        assert (first.usual, first.wire.closed) == (1, True), "one connection too many ends with its answer"
        second = Connection(centre)
        assert [s for s, _ in await second.says(request(centre.token["n1"], heartbeat(10)))] == [429]

    asyncio.run(talk())
    centre.close()


def test_a_connection_from_before_a_change_of_authorities_ends_with_its_answer(centre: Inside) -> None:
    async def talk() -> None:
        connection = Connection(reported(centre))
        connection.protocol.stale = lambda: True
        assert [s for s, _ in await connection.says(request(centre.token["n1"], heartbeat(8)))] == [200]
        assert (connection.usual, connection.wire.closed) == (1, True)

    asyncio.run(talk())


def test_a_person_with_a_nodes_name_is_no_node(centre: Inside) -> None:
    token = centre.tokens.issue(Role.OPERATOR, "n1", 1.0)

    async def talk() -> None:
        connection = Connection(reported(centre))
        assert [s for s, _ in await connection.says(request(token, heartbeat(8)))] == [403]

    asyncio.run(talk())


def test_a_copied_token_is_worth_nothing_without_the_nodes_certificate(centre: Inside) -> None:
    async def talk() -> None:
        lane = HeartbeatLane(reported(centre).service)
        lane._by_certificate = True
        for names, served in (((), False), (("n2",), False), (("n1",), True)):
            connection = Connection(centre, names=names)
            answer = lane.answer(connection.protocol, "n1", centre.token["n1"], heartbeat(8), 0.0)
            assert (answer is not None) is served, names

    asyncio.run(talk())


def test_a_revoked_token_ends_the_heartbeats(centre: Inside) -> None:
    async def talk() -> None:
        connection = Connection(reported(centre))
        await connection.says(request(centre.token["n1"], heartbeat(8)))
        identity = centre.tokens.identify(centre.token["n1"])
        assert identity is not None
        centre.tokens.revoke(1.0, token_id=identity.id)
        centre.tokens.refresh()
        assert [s for s, _ in await connection.says(request(centre.token["n1"], heartbeat(9)))] == [401]

    asyncio.run(talk())


def test_a_connection_that_does_not_read_its_answers_is_not_written_to(centre: Inside) -> None:
    async def talk() -> None:
        connection = Connection(reported(centre))
        connection.protocol.pause_writing()
        connection.protocol.data_received(request(centre.token["n1"], heartbeat(8)))
        assert connection.wire.written == b""
        connection.protocol.resume_writing()

    asyncio.run(talk())
