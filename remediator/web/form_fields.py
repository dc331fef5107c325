"""Parses form fields as browsers send them. Pure."""

from __future__ import annotations

from urllib.parse import parse_qsl

from remediator.api.handler_context import NUL_TOLD, Refusal

FIELDS_MAX = 50


def parse_form_fields(body: bytes) -> dict[str, str]:
    """Map names to texts; the last value of a repeated name wins.

    Raises:
        Refusal: 400, the body is not a form.
    """
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise Refusal(400, "the request is not a valid form", "go back and submit it again") from error
    if b"%00" in body or b"\0" in body:
        raise Refusal(400, NUL_TOLD)
    return dict(pairs)
