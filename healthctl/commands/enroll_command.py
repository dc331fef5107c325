"""`healthctl enroll`: on a node, get a token of its own with a join secret, and see that the centre takes it."""

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
    epilog="Example: healthctl enroll --server https://centre.example:15180. "
    "Exit codes: 0 the centre takes the token, 2 wrong usage, 3 refused, or no answer."
)
@click.option(
    "--server", "url", envvar=SERVER_VARIABLE, metavar="URL", required=True, help="The remediator.", show_envvar=True
)
@click.option("--join-file", type=click.Path(path_type=Path), default=JOIN_FILE, show_default=True,
              help="File with a join secret: 'healthctl token join PATTERN' makes one.")  # fmt: skip
@click.option("--out", type=click.Path(path_type=Path), default=TOKEN_FILE, show_default=True, metavar="FILE",
              help="Write the node's token there, readable by you alone. One that is there is kept, and tried.")  # fmt: skip
@click.option("--node", envvar="HEALTHD_NODE", show_envvar=True, help="This node's name.  [default: its host name]")
@click.option("--ca-file", envvar=CA_VARIABLE, type=click.Path(path_type=Path), show_envvar=True,
              help="Certificates that the server's must be signed by. [default: the system's]")  # fmt: skip
def enroll(url: str, join_file: Path, out: Path, node: str | None, ca_file: Path | None) -> None:
    """Get this node a token of its own, and see that the centre takes it. Run it as the user that healthd runs as.

    The node makes the token; the centre hears its digest alone. Said again it changes nothing.
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
        raise Failure(f"{error.filename or out}: {error.strerror}; run as root, or give --out another place") from None
    except ControllerError as error:
        raise Failure(str(error)) from None
    done = "was there already, and" if there else "is new, and"
    click.echo(f"{name}: the token in {out} {done} {url} takes it")
    click.echo(_format_next_steps(config, name))


def _must_be_readable(join_file: Path) -> None:
    try:
        with join_file.open("rb"):
            pass
    except OSError as error:
        todo = "an admin makes one with 'healthctl token join PATTERN --out FILE'"
        raise Failure(f"--join-file {join_file}: the join secret cannot be read: {error.strerror}; {todo}") from None


def _format_next_steps(config: RemediatorConfig, node: str) -> str:
    """What is still to be done, ready to be copied."""
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
