"""How long a person waits for a command that does little."""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import ThreadingHTTPServer
from pathlib import Path

from bench import minimum_costs
from bench.healthctl_start import HEALTHCTL, Centre, installed_environment, time_command
from bench.report.records import Beside, Budget, Effort, Figure, Limit, Measured, at_most, summarise_values

COMMANDS = (("--help",), ("version",), ("status",), ("nodes", "--limit", "20"))


def measure_healthctl_start(effort: Effort) -> Measured:
    """Whole processes against a controller that answers at once."""
    runs = effort.either(5, 15)
    floor = statistics.median(minimum_costs.time_command([sys.executable, "-c", "pass"], runs)) * 1e3
    beside = Beside("a bare interpreter", floor)
    with _answering() as environment:
        repeats = {
            command: [
                [time_command([str(HEALTHCTL), *command], environment) for _ in range(runs + 1)][1:]
                for _ in range(effort.repeats)
            ]
            for command in COMMANDS
        }
    clock = [_figure(command, "", found, 0, at_most(p50=150.0), beside) for command, found in repeats.items()]
    processor = [_figure(command, ", processor", found, 1) for command, found in repeats.items()]
    return Measured(
        figures=(*clock, *processor),
        how="From start to end into a pipe, by the clock, against a thread that sends answers made once: so it is healthctl alone.",
        because="the clock counts what else runs on these processors; the rows of processor time tell how much is the command's own, nearly all of it imports",
        moves="a processor that is not shared; fewer imports",
    )


def _figure(
    command: tuple[str, ...],
    what: str,
    found: list[list[tuple[float, float]]],
    which: int,
    limits: tuple[Limit, ...] = (),
    beside: Beside | None = None,
) -> Figure:
    """`which`: 0 the clock's seconds, 1 the processor's."""
    repeats = tuple(summarise_values((run[which] for run in repeat), 1e3) for repeat in found)
    return Figure(
        named=f"healthctl {' '.join(command)}{what}", unit="ms", repeats=repeats, limits=limits, beside=beside
    )


@contextmanager
def _answering() -> Iterator[dict[str, str]]:
    """The environment in which healthctl finds the controller."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Centre)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    with tempfile.TemporaryDirectory() as place:
        token = Path(place) / "token"
        token.write_text("t\n")
        token.chmod(0o600)
        url = f"http://127.0.0.1:{server.server_port}"
        yield installed_environment() | {"HEALTHCTL_SERVER": url, "HEALTHCTL_TOKEN_FILE": str(token), "NO_PROXY": "*"}
    server.shutdown()
    server.server_close()


BUDGET = Budget("healthctl-start", "A simple command, from its start to its end", "< 150 ms", measure_healthctl_start)
