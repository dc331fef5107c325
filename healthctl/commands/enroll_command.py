"""`healthctl enroll`: gets a node its own token with a join secret, and checks that the remediator accepts it."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING

import click

from healthctl.api_client.remediator_client import CA_VARIABLE, SERVER_VARIABLE
from healthctl.exit_codes import Exit, Failure

if TYPE_CHECKING:
    from healthd.config import RemediatorConfig

TOKEN_FILE = Path("/etc/gpu-healthd/token")
JOIN_FILE = Path("/etc/gpu-healthd/join")


@click.command(
    epilog="Example: healthctl enroll --server https://controller.example:15180. "
    "Exit codes: 0 the token is accepted, 2 wrong usage, 3 refused, or no response."
)
@click.option(
    "--server",
    "url",
    envvar=SERVER_VARIABLE,
    metavar="URL",
    required=True,
    help="URL of the controller.",
    show_envvar=True,
)
@click.option("--join-file", type=click.Path(path_type=Path), default=JOIN_FILE, show_default=True,
              help="File with a join secret from 'healthctl token join PATTERN'.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=TOKEN_FILE, show_default=True, metavar="FILE",
              help="Write the token to this file, readable only by you. An existing token is kept and tested.")  # fmt: skip
@click.option("--node", envvar="HEALTHD_NODE", show_envvar=True, help="Name of this node.  [default: its host name]")
@click.option("--ca-file", envvar=CA_VARIABLE, type=click.Path(path_type=Path), show_envvar=True,
              help="CA certificates to verify the server with. [default: the system's]")  # fmt: skip
def enroll(url: str, join_file: Path, out: Path, node: str | None, ca_file: Path | None) -> None:
    """Get this node its own token with a join secret, and check that the remediator accepts it.

    Run it as the user that healthd runs as. The token is created on the node; the remediator receives only its digest.
    Running it again changes nothing.
    """
    from healthd.config import RemediatorConfig
    from healthd.controller.controller_client import ControllerClient, ControllerError, enrol_node
    from healthd.controller.http_client import HttpClient, TlsCredentials
    from vocabulary.identity import require_node_name

    try:
        name = require_node_name(node or socket.gethostname())
        config = RemediatorConfig(url=url, token_file=out, ca_file=ca_file)
        there = out.exists()
        if not there:
            _must_be_readable(join_file)
            out.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            enrol_node(HttpClient(url, TlsCredentials(ca_file)), url.rstrip("/"), name, join_file, out)
        ControllerClient(config, name).orders((), 0)
    except ValueError as error:
        raise Failure(str(error), Exit.USAGE) from None
    except OSError as error:
        raise Failure(
            f"{error.filename or out}: {error.strerror}; run as root, or choose another path with --out"
        ) from None
    except ControllerError as error:
        raise Failure(str(error)) from None
    done = "already exists, and" if there else "is new, and"
    click.echo(f"{name}: the token in {out} {done} {url} accepts it")
    click.echo(_format_next_steps(config, name))


def _must_be_readable(join_file: Path) -> None:
    try:
        with join_file.open("rb"):
            pass
    except OSError as error:
        todo = "an admin creates one with 'healthctl token join PATTERN --out FILE'"
        raise Failure(f"--join-file {join_file}: cannot read the join secret: {error.strerror}; {todo}") from None


def _format_next_steps(config: RemediatorConfig, node: str) -> str:
    """The remaining steps, ready to copy."""
    lines = [
        "",
        "Next, in /etc/gpu-healthd/healthd.yaml:",
        f"  node: {node}",
        "  remediator:",
        f"    url: {config.url}",
    ]
    lines.append(f"    token_file: {Path(config.token_file or '').absolute()}")
    if config.ca_file is not None:
        lines.append(f"    ca_file: {config.ca_file.absolute()}")
    return "\n".join([*lines, "then: systemctl restart gpu-healthd, and healthctl doctor"])
