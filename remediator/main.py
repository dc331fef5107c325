"""The command line of the controller."""

from __future__ import annotations

import logging
import sys
import time
from pathlib import Path

import click

from remediator.commands.reservation_commands import slurm_group
from remediator.commands.shared_options import CONFIG, INGEST_CONFIG
from remediator.commands.token_commands import token_group


@click.group()
@click.version_option(package_name="gpu-healthd")
@click.pass_context
def main(context: click.Context) -> None:
    """The gpu-healthd controller: findings of all nodes in, bounded actions out."""
    level = (
        logging.INFO if context.invoked_subcommand in {"serve", "ingest"} else logging.WARNING
    )  # only the command's own output
    logging.basicConfig(level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s")


@main.command("serve")
@CONFIG
def serve_command(config_path: Path) -> None:
    """Run the controller until SIGTERM."""
    from remediator.config import ConfigError, load_config
    from remediator.playbook.playbook_errors import PolicyError
    from remediator.serving.replica import serve_replica
    from remediator.store.journal import StoreError

    try:
        serve_replica(load_config(config_path))
    except (ConfigError, PolicyError, StoreError) as error:
        raise click.ClickException(str(error)) from error


@main.command("ingest")
@INGEST_CONFIG
def ingest_command(config_path: Path) -> None:
    """Carry messages between NATS and the controller until SIGTERM. Only sites that use NATS need it."""
    from remediator.ingest.ingest_config import IngestConfigError, load_ingest_config

    try:
        config = load_ingest_config(config_path)
        from remediator.ingest.ingest_service import serve_ingest

        serve_ingest(config)
    except ImportError as error:
        raise click.ClickException(f"{error}; install gpu-healthd[ingest]") from error
    except IngestConfigError as error:
        raise click.ClickException(str(error)) from error


@main.command("nats-config")
@click.option("--out", "place", type=click.Path(path_type=Path), required=True, help="Folder for the files.")
@click.option("--listen", default="0.0.0.0:4222", show_default=True, help="HOST:PORT of the NATS server.")
@click.option(
    "--store",
    type=click.Path(path_type=Path),
    default="/var/lib/nats",
    show_default=True,
    help="Folder of the server's streams.",
)
@click.option("--store-bytes", type=click.IntRange(1 << 20), default=4 << 30, show_default=True, help="Its limit.")
def nats_config_command(place: Path, listen: str, store: Path, store_bytes: int) -> None:
    """Write a configuration for nats-server and the keys of 'remediator ingest'. Keys that exist are kept."""
    try:
        from remediator.ingest.server_configuration import write_server_configuration

        for file in write_server_configuration(place, listen=listen, store=store, store_bytes=store_bytes):
            click.echo(file)
    except ImportError as error:
        raise click.ClickException(f"{error}; install gpu-healthd[ingest]") from error
    except (OSError, ValueError) as error:
        raise click.ClickException(str(error)) from error


main.add_command(token_group)
main.add_command(slurm_group)


@main.group("webhooks")
def webhooks_group() -> None:
    """Receivers of alerts and tickets."""


@webhooks_group.command("test")
@CONFIG
@click.argument("name")
def webhooks_test_command(config_path: Path, name: str) -> None:
    """Send one test message to the receiver NAME, and print the result."""
    from remediator.commands.webhook_commands import send_receiver_test
    from remediator.config import ConfigError, load_config

    try:
        for line in send_receiver_test(load_config(config_path), name):
            click.echo(line)
    except ConfigError as error:
        raise click.ClickException(str(error)) from error


@webhooks_group.command("list")
@CONFIG
@click.option(
    "--limit", type=click.IntRange(1, 10_000), default=30, show_default=True, help="Maximum number, newest first."
)
def webhooks_list_command(config_path: Path, limit: int) -> None:
    """List deliveries with recipient and state."""
    from remediator.commands.webhook_commands import list_deliveries
    from remediator.config import ConfigError, load_config

    try:
        click.echo("\n".join(list_deliveries(load_config(config_path), limit)))
    except ConfigError as error:
        raise click.ClickException(str(error)) from error


@main.group("audit")
def audit_group() -> None:
    """The audit log."""


@audit_group.command("verify")
@CONFIG
def audit_verify_command(config_path: Path) -> None:
    """Verify the chain of the audit log; exits with 1 and names the first event that does not match."""
    from remediator.commands.store_commands import verify_audit_chain
    from remediator.config import ConfigError, load_config
    from remediator.store.audit_log import describe_chain_check
    from remediator.store.journal import StoreError

    try:
        found = verify_audit_chain(load_config(config_path))
    except (ConfigError, StoreError) as error:
        raise click.ClickException(str(error)) from error
    click.echo("\n".join(describe_chain_check(found)))
    raise SystemExit(1 if found.broken else 0)


@main.command("export")
@CONFIG
@click.option(
    "--since", default="1970-01-01", help="Start: 7d, 12h, or a date or time in ISO 8601.  [default: everything]"
)
@click.option(
    "-o",
    "--output",
    "output",
    type=click.Path(path_type=Path, dir_okay=False),
    required=True,
    help="Output file (JSON lines), or - for standard output.",
)
def export_command(config_path: Path, since: str, output: Path) -> None:
    """Write records as lines of JSON, oldest first within their table. Credentials are left out."""
    from remediator.commands.store_commands import export_records, export_records_to_file, parse_since_option
    from remediator.config import ConfigError, load_config
    from remediator.store.journal import StoreError

    try:
        config, start = load_config(config_path), parse_since_option(since, time.time())
        if str(output) == "-":
            export_records(config, start, sys.stdout.buffer)
        else:
            click.echo(f"{export_records_to_file(config, start, output)} records in {output}", err=True)
    except (ConfigError, StoreError, ValueError, OSError) as error:
        raise click.ClickException(str(error)) from error


@main.command("compact")
@CONFIG
def compact_command(config_path: Path) -> None:
    """Release the space of deleted data now; on SQLite only while the remediator is stopped."""
    from remediator.commands.store_commands import compact_database
    from remediator.config import ConfigError, load_config
    from remediator.store.journal import StoreError

    try:
        click.echo(compact_database(load_config(config_path)))
    except (ConfigError, StoreError) as error:
        raise click.ClickException(str(error)) from error
