"""Describes an invalid body: the field and what it expects, in terms of the API. Pure."""

from __future__ import annotations

import re

import msgspec
from msgspec import inspect

from vocabulary.messages.wire import WireError

SENT_CHARS = 60  # shown of a value
_AT = re.compile(r"(?P<what>.*?) - at `\$\.?(?P<place>[^`]*)`", re.DOTALL)
_FIELD = re.compile(r"Object (?P<how>missing required|contains unknown) field `(?P<field>[^`]*)`")
_EXPECTED = re.compile(r"Expected `(?P<wanted>[^`]*)`(?:, got `(?P<got>[^`]*)`)?(?P<limit>.*)", re.DOTALL)
_WORDS = {
    "str": "a text",
    "int": "an integer",
    "float": "a number",
    "bool": "true or false",
    "null": "null",
    "object": "an object",
    "array": "a list",
}
_COMPARED = {"length >= ": "at least {} long", "length <= ": "at most {} long", "<= ": "at most {}", "< ": "below {}"}
_COMPARED |= {">= ": "at least {}", "> ": "above {}", "matching regex ": "like {}"}


def describe_body_error(error: BaseException, kind: type) -> str:
    """Describe the error in one sentence.

    Args:
        error: the decoder's error.
        kind: the expected message.
    """
    text = str(error)
    placed = _AT.fullmatch(text)
    what, place = (placed["what"], placed["place"]) if placed else (text, "")
    where = f"the field '{place}'" if place else "the body"
    if found := _FIELD.fullmatch(what):
        wanted = "lacks the field" if found["how"].startswith("missing") else "has an unknown field:"
        inner = f"{place}.{found['field']}" if place else found["field"]
        return f"the body {wanted} '{inner}'"
    if found := _EXPECTED.fullmatch(what):
        return f"{where}: expected {_expected_text(found['wanted'], found['limit'])}{_received_text(found['got'])}"
    if what.startswith("Invalid enum value"):
        return f"{where}: {what.removeprefix('Invalid enum value').strip()} is not one of {_allowed_values_text(kind, place)}"
    return f"the body is not valid JSON: {what}"


def describe_bound_error(error: WireError, kind: type, body: bytes) -> str:
    """Describe an invalid or too large message of a node: the field, the limit, and what was sent.

    Args:
        error: the decoder's error.
        kind: the expected message.
        body: the message itself.
    """
    cause = error.__cause__
    if cause is None:
        return str(error)
    told = describe_body_error(cause, kind)
    if error.finding:
        return f"finding {error.finding!r}: {told}"
    placed = _AT.fullmatch(str(cause))
    if placed is None or not placed["place"].isidentifier() or not isinstance(cause, msgspec.ValidationError):
        return told
    sent = msgspec.json.decode(body, type=dict[str, msgspec.Raw]).get(placed["place"], msgspec.Raw(b""))
    return f"{told}; the node sent {bytes(sent)[:SENT_CHARS].decode(errors='replace')}"


def _expected_text(names: str, limit: str) -> str:
    wanted = " or ".join(_WORDS.get(name.strip(), name.strip()) for name in names.split("|"))
    bare = limit.strip().removeprefix("of ").strip()
    for begins, words in _COMPARED.items():
        if bare.startswith(begins):
            return f"{wanted}, {words.format(bare.removeprefix(begins).strip())}"
    return wanted + (f" {bare}" if bare else "")


def _received_text(name: str | None) -> str:
    return f", not {_WORDS.get(name, name)}" if name else ""


def _allowed_values_text(kind: type, place: str) -> str:
    """List the values a field of the message may have."""
    info = inspect.type_info(kind)
    fields = {f.encode_name: f.type for f in info.fields} if isinstance(info, inspect.StructType) else {}
    found = fields.get(place)
    values: tuple[object, ...] = ()
    if isinstance(found, inspect.LiteralType):
        values = tuple(found.values)
    elif isinstance(found, inspect.EnumType):
        values = tuple(each.value for each in found.cls)
    return ", ".join(repr(value) for value in values) or "the known values"
