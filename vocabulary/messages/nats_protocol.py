"""Subjects and messages between nodes and ingest processes, for sites that use NATS between them.

A node publishes on `gpuhealth.CLUSTER.KIND.NODE`, one subject per kind, and receives on `gpuhealth.CLUSTER.node.NODE.>`.
Bodies are those of the HTTP API and opaque here. Messages are MessagePack arrays.
"""

from __future__ import annotations

import re

import msgspec

ROOT = "gpuhealth"
KINDS = ("report", "heartbeat", "answer", "hazard")  # what a node may send; each replaces the node's last of that kind
ENVELOPE_BYTES = 4096  # added to a body by the longest envelope

_PLAIN = re.compile(r"[A-Za-z0-9_-]")
_ESCAPED = re.compile(r"=([0-9A-F]{2})")
_TOKEN = re.compile(r"(?:[A-Za-z0-9_-]|=[0-9A-F]{2})+")


class NodeMessage(msgspec.Struct, frozen=True, array_like=True):
    """What a node sends. `id` identifies the reply; it is unique per node."""

    id: str
    body: bytes


class NodeReply(msgspec.Struct, frozen=True, array_like=True):
    """The controller's reply to a message: the status and body that HTTP would have had. `retry_after_s` 0: not set."""

    id: str
    status: int
    body: bytes = b""
    retry_after_s: float = 0.0


def escape_token(name: str) -> str:
    """Return `name` as one token of a subject; reversible.

    >>> escape_token("gpu-1.rack")
    'gpu-1=2Erack'
    """
    return "".join(c if _PLAIN.fullmatch(c) else "".join(f"={b:02X}" for b in c.encode()) for c in name)


def unescape_token(token: str) -> str:
    """Return the name of a token.

    Raises:
        ValueError: `escape_token` makes no such token.
    """
    if _TOKEN.fullmatch(token) is None:
        raise ValueError(f"not an escaped name: {token!r}")
    raw = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), token).encode("latin-1")
    name = raw.decode()
    if escape_token(name) != token:
        raise ValueError(f"not an escaped name: {token!r}")
    return name


def upward_subject(cluster: str, kind: str, node: str) -> str:
    """Return the subject on which a node sends messages of a kind."""
    return f"{ROOT}.{escape_token(cluster)}.{kind}.{escape_token(node)}"


def stream_subjects(cluster: str) -> list[str]:
    """Return the subjects that the stream stores."""
    return [f"{ROOT}.{escape_token(cluster)}.{kind}.*" for kind in KINDS]


def stream_name(cluster: str) -> str:
    """Return the name of the cluster's stream."""
    return f"{ROOT}-{escape_token(cluster)}"


def node_prefix(cluster: str, node: str) -> str:
    """Return what all subjects begin with on which a node receives; only that node may subscribe to them."""
    return f"{ROOT}.{escape_token(cluster)}.node.{escape_token(node)}"


def read_upward_subject(subject: str, cluster: str) -> tuple[str, str]:
    """Return kind and node of a subject.

    Raises:
        ValueError: it is not one of this cluster's upward subjects.
    """
    match subject.split("."):
        case [root, of, kind, node] if root == ROOT and of == escape_token(cluster) and kind in KINDS:
            return kind, unescape_token(node)
    raise ValueError(f"not a node's subject: {subject[:200]!r}")


def encode_envelope(message: NodeMessage | NodeReply) -> bytes:
    """Encode a message for NATS."""
    return msgspec.msgpack.encode(message)


def decode_node_message(data: bytes) -> NodeMessage:
    """Decode what a node sent.

    Raises:
        ValueError: it is not such a message.
    """
    try:
        return msgspec.msgpack.decode(data, type=NodeMessage)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a node's message: {error}") from error


def decode_node_reply(data: bytes) -> NodeReply:
    """Decode a reply to a node.

    Raises:
        ValueError: it is not one.
    """
    try:
        return msgspec.msgpack.decode(data, type=NodeReply)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ValueError(f"not a reply: {error}") from error
