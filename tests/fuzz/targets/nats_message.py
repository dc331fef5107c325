"""What a node publishes to the ingest, what comes back, and the subject that both trust."""

from __future__ import annotations

import contextlib

from remediator.ingest.node_permissions import read_callout_request
from tests.fuzz.target import Target
from vocabulary.messages.nats_protocol import (
    NodeMessage,
    NodeReply,
    decode_node_message,
    decode_node_reply,
    encode_envelope,
    read_upward_subject,
    unescape_token,
    upward_subject,
)


def judge(data: bytes) -> None:
    """Each reader takes it or raises its one declared error; a subject's node is the only one with that subject."""
    for read in (decode_node_message, decode_node_reply, read_callout_request):
        with contextlib.suppress(ValueError):
            read(data)
    try:
        subject = data.decode()
        kind, node = read_upward_subject(subject, "c")
    except ValueError:
        return
    if upward_subject("c", kind, node) != subject or unescape_token(subject.rpartition(".")[2]) != node:
        raise AssertionError("two subjects for one node")


TARGET = Target(
    judge,
    (
        encode_envelope(NodeMessage("a-1", b"{}")),
        encode_envelope(NodeReply("a-1", 200, b"{}", 1.0)),
        upward_subject("c", "report", "gpu-1.rack_2").encode(),
        b"e30.eyJuYXRzIjp7InNlcnZlcl9pZCI6eyJpZCI6Ik4ifSwidXNlcl9ua2V5IjoiVSJ9fQ.x",
    ),
)
