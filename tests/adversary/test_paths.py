"""No name that comes over the network leads out of the folder, or the row, that it belongs to."""

from __future__ import annotations

import gzip
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from healthd.orders.evidence_files import EvidenceFiles
from healthd.trainer.interval.hazard_file import hazard_path
from tests.unit.remediator.api.test_tls_listener import Door

SECRET = b"not for anybody"
CLIMBS = [
    "../secret",
    "..%2fsecret",
    "%2e%2e/secret",
    "..%252fsecret",
    "..\\secret",
    "..%5csecret",
    "....//secret",
    "/secret",
    "%2fsecret",
    "x/../../secret",
    "secret%00.css",
    "..;/secret",
    "%c0%ae%c0%ae/secret",
]


@pytest.fixture(scope="module")
def door(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Door]:
    place = tmp_path_factory.mktemp("door")
    (place / "secret").write_bytes(SECRET)
    made = Door(place)
    yield made
    made.close()


def asked(door: Door, method: str, path: str, body: bytes = b"") -> bytes:
    """The answer to a path that no client tidied up."""
    token = door.inside.token["ann" if method == "GET" else "n1"]
    head = f"{method} {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nAuthorization: Bearer {token}\r\nContent-Length: {len(body)}\r\n\r\n"
    said = b""
    with socket.create_connection(("127.0.0.1", door.port), timeout=60) as caller:
        caller.sendall(head.encode() + body)
        while piece := caller.recv(65536):
            said += piece
    return said


@pytest.mark.parametrize("climb", CLIMBS)
@pytest.mark.parametrize("folder", ["/static/x", "/v1/incidents", "/v1/nodes", "/nodes", "/incidents", ""])
def test_no_path_reads_a_file(door: Door, folder: str, climb: str) -> None:
    said = asked(door, "GET", f"{folder}/{climb}")
    assert SECRET not in said
    assert said.startswith((b"HTTP/1.1 4", b"HTTP/1.1 303 "))  # a page sends whoever has no session to the login


@pytest.mark.parametrize("climb", CLIMBS)
def test_no_name_of_an_order_writes_one(door: Door, climb: str) -> None:
    said = asked(door, "POST", f"/v1/nodes/n1/evidence/{climb}", gzip.compress(b"{}"))
    assert said.startswith(b"HTTP/1.1 4")


@given(st.text(max_size=80) | st.sampled_from(CLIMBS))
def test_what_a_node_keeps_lies_in_its_folder_whatever_the_order_or_job_is_called(name: str) -> None:
    folder = Path("/var/lib/gpu-healthd/evidence")
    written = EvidenceFiles(folder).path(name)
    assert written.parent == folder
    assert written.name.endswith(".json.gz")
    published = Path(hazard_path("/dev/shm/gpu-healthd", name))
    assert published.parent == Path("/dev/shm/gpu-healthd")
    assert ".." not in published.parts
