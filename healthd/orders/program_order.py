"""Orders that run a program: a preflight or a GPU reset. Started by argument list, never by a shell."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence

from healthd.host import SHORTAGES, CommandResult, Host, RunningCommand
from healthd.orders.order_task import Data, HealthVerification, make_order_update
from vocabulary.order import Order, OrderState, OrderUpdate

TEXT_CHARS_MAX = 1000
FIGURES_MAX = 40
FIGURE_NAME_MAX = 100
START_AGAIN_S = 1.0

Judge = Callable[[Order, CommandResult, Data, float], "OrderUpdate | HealthVerification"]


class ProgramStarter:
    """Starts an order's program. While descriptors, processes or memory are short, it retries every second."""

    def __init__(self, host: Host, order: Order, command: Sequence[str]) -> None:
        self._host = host
        self._order = order
        self._command = command
        self._name = f"the program of order {order.kind.value}"
        self._shortage = ""
        self._next_try = 0.0

    def start(self, now: float) -> RunningCommand | None:
        """Return the running program; None while it must wait.

        Raises:
            OSError: it cannot be started, and a retry would not help.
        """
        if now < self._next_try:
            return None
        try:
            running = self._host.run(self._command, self._order.expires_at - now)
        except OSError as error:
            if error.errno not in SHORTAGES:
                self.give_up()
                raise
            self._shortage = error.strerror or str(error)
            self._next_try = now + START_AGAIN_S
            self._host.start_failures.note(self._name, error)
            return None
        self._host.start_failures.clear(self._name)
        return running

    def give_up(self) -> str:
        """End the order without its program; return why it never started."""
        self._host.start_failures.clear(self._name)
        return "the order expired before its program could start" + (f": {self._shortage}" if self._shortage else "")


class ProgramTask:
    """Runs one program to its end or the order's. After a restart, ends what is left of an earlier run first."""

    def __init__(
        self,
        order: Order,
        answer: OrderUpdate,
        command: Sequence[str],
        host: Host,
        judge: Judge,
        ready: Callable[[], bool] = lambda: True,
    ) -> None:
        self._order = order
        self._data: Data = dict(answer.data)
        self._command = command
        self._host = host
        self._judge = judge
        self._ready = ready
        self._running: RunningCommand | None = None
        self._starter = ProgramStarter(host, order, command)

    def step(self, now: float) -> OrderUpdate | HealthVerification | None:
        """Start the program; then check whether it has ended."""
        if self._running is None:
            if now >= self._order.expires_at:
                return make_order_update(self._order, OrderState.EXPIRED, now, self._starter.give_up())
            return self._start(now) if self._ready() else None
        finished = self._running.poll()
        if finished is None:
            return None
        data = {name: value for name, value in self._data.items() if name not in ("pid", "pid_started")}
        data["seconds"] = round(now - float(self._data["started_at"]), 3)
        if finished.overdue:
            return make_order_update(self._order, OrderState.FAILED, now, "killed when the order expired", data)
        return self._judge(self._order, finished, data, now)

    def close(self) -> None:
        """End the program, because its result would be lost."""
        self._starter.give_up()
        if self._running is not None:
            self._running.close()

    def _start(self, now: float) -> OrderUpdate | None:
        if "pid" in self._data:
            self._host.end_group(int(self._data["pid"]), int(self._data.get("pid_started", -1)))
        try:
            self._running = self._starter.start(now)
        except OSError as error:
            return make_order_update(
                self._order, OrderState.FAILED, now, f"{self._command[0]} cannot be started: {error.strerror}"
            )
        if self._running is None:
            return None
        started = self._host.process_start(self._running.pid)
        self._data |= {"started_at": now, "pid": self._running.pid, "pid_started": -1 if started is None else started}
        return make_order_update(
            self._order, OrderState.RUNNING, now, " ".join(self._command)[:TEXT_CHARS_MAX], self._data
        )


def fill_arguments(template: Sequence[str], words: Mapping[str, str]) -> list[str]:
    """Insert values into an argument list. Only whole ``{name}`` marks are replaced; values are not interpreted.

    >>> fill_arguments(["nvidia-smi", "-i", "{gpu}"], {"gpu": "GPU-1"})
    ['nvidia-smi', '-i', 'GPU-1']
    """
    arguments = []
    for part in template:
        for name, word in words.items():
            part = part.replace(f"{{{name}}}", word)  # noqa: PLW2901 - each word in turn
        arguments.append(part)
    return arguments


def judge_preflight(order: Order, finished: CommandResult, data: Data, now: float) -> OrderUpdate | HealthVerification:
    """Read the result from the JSON at the end of the program's standard output; only a clear pass is a pass."""
    verdict = parse_last_object(finished.stdout)
    data = data | _select_scalars(verdict) | _select_worst_figures(verdict)
    whole = verdict.get("complete", True) is True and not verdict.get("injected")
    if verdict.get("verdict") == "pass" and finished.returncode == 0 and whole:
        answer = make_order_update(
            order, OrderState.SUCCEEDED, now, f"preflight {order.level} passed".replace("  ", " "), data
        )
        return HealthVerification(answer, by=f"preflight {order.id}", whole_node=True, until=_read_begin_time(data))
    why = str(verdict.get("reason") or verdict.get("detail") or finished.stderr.strip()[-TEXT_CHARS_MAX:])
    word = verdict.get("verdict", "no verdict")
    return make_order_update(
        order, OrderState.FAILED, now, f"{word} (exit {finished.returncode}): {why}"[:TEXT_CHARS_MAX], data
    )


def _read_begin_time(data: Data) -> float | None:
    """Return the start time: the test does not disprove a fault that appears while it runs."""
    began = data.get("started_at")
    return float(began) if isinstance(began, int | float) else None


def judge_reset(order: Order, finished: CommandResult, data: Data, now: float) -> OrderUpdate | HealthVerification:
    """Read the result from the reset tool's exit code."""
    if finished.returncode == 0:
        answer = make_order_update(order, OrderState.SUCCEEDED, now, f"{order.gpu} was reset", data)
        return HealthVerification(answer, by=f"reset {order.id}", gpu=order.gpu)
    words = (finished.stderr.strip() or finished.stdout.strip())[-TEXT_CHARS_MAX:]
    return make_order_update(order, OrderState.FAILED, now, f"exit {finished.returncode}: {words}", data)


def parse_last_object(text: str) -> dict[str, object]:
    """Return the JSON object that is the text or its last line; empty if there is none."""
    for candidate in (text, text.strip().rpartition("\n")[2]):
        try:
            value = json.loads(candidate)
        except ValueError:
            continue
        if isinstance(value, dict):
            return value
    return {}


def _select_scalars(verdict: Mapping[str, object]) -> Data:
    """Return the parts an answer can carry: short strings and numbers."""
    return {
        name: value[:TEXT_CHARS_MAX] if isinstance(value, str) else value
        for name, value in verdict.items()
        if isinstance(value, (str, int, float, bool))
    }


def _select_worst_figures(verdict: Mapping[str, object]) -> Data:
    """Return each figure's worst value over all devices as `figure NAME UNIT`: by margin if any, else the lowest."""
    worst: dict[str, tuple[float, float]] = {}
    for figure in _iterate_figures(verdict):
        value, margin = figure.get("value"), figure.get("margin")
        if not isinstance(value, int | float):
            continue
        name = f"figure {figure.get('name')} {figure.get('unit')} {figure.get('setting') or ''}".rstrip()[
            :FIGURE_NAME_MAX
        ]
        badness = (float(margin) if isinstance(margin, int | float) else float("inf"), float(value))
        worst[name] = min(worst.get(name, badness), badness)
    return {name: value for name, (_, value) in sorted(worst.items())[:FIGURES_MAX]}


def _iterate_figures(verdict: Mapping[str, object]) -> Iterator[Mapping[str, object]]:
    results = verdict.get("results")
    for result in results if isinstance(results, list) else []:
        figures = result.get("figures") if isinstance(result, dict) else None
        yield from (figure for figure in (figures if isinstance(figures, list) else []) if isinstance(figure, dict))
