"""The fields of a form, as browsers send them. Pure."""

from __future__ import annotations

from urllib.parse import parse_qsl

from remediator.api.handler_context import NUL_TOLD, Refusal

FIELDS_MAX = 50


def parse_form_fields(body: bytes) -> dict[str, str]:
    """Name → text; of a name that came twice, the last.

    Raises:
        Refusal: 400, it is no form.
    """
    try:
        pairs = parse_qsl(body.decode("ascii"), keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
    except ValueError as error:
        raise Refusal(400, "this is no form", "go back and send it again") from error
    if b"%00" in body or b"\0" in body:
        raise Refusal(400, NUL_TOLD)
    return dict(pairs)
