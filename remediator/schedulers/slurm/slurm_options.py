"""Options of the Slurm backend."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec


class RestOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Where slurmrestd is.

    Args:
        url: ``unix:/run/slurmrestd/slurmrestd.socket``, ``http://HOST:6820`` or ``https://…``.
        version: of its API, such as ``v0.0.40``; empty: the newest supported by both sides.
        user: owner of the token; empty: no token is sent, as over a UNIX socket.
        token_file: read for each request, so that a renewed token applies at once.
    """

    url: Annotated[str, msgspec.Meta(pattern=r"^(unix:/|https?://)")] = "unix:/run/slurmrestd/slurmrestd.socket"
    version: Annotated[str, msgspec.Meta(pattern=r"^(v0\.0\.\d+)?$")] = ""
    user: str = ""
    token_file: str = ""


class SlurmOptions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to reach Slurm.

    Args:
        conf: the slurm.conf to use; empty: the installed one.
        deadline_s: for each query or change in total.
        ask: `text`, the one-line formats of ``scontrol`` and ``squeue``; `json`, their ``--json``; `rest`, slurmrestd.
        rest: where slurmrestd is; only for `rest`.
        requeue_after_s: requeue what still runs on a node this long after we drained it; 0: never, wait until it ends.
    """

    conf: str = ""
    deadline_s: Annotated[float, msgspec.Meta(gt=0)] = 10.0
    ask: Literal["text", "json", "rest"] = "text"
    rest: RestOptions = RestOptions()
    requeue_after_s: Annotated[float, msgspec.Meta(ge=0)] = 0.0
