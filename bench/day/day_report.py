"""The page and its picture, from two accounts."""

from __future__ import annotations

import statistics
from collections.abc import Iterable, Mapping, Sequence

from bench.day import assumptions
from bench.day.fault_timeline import ALREADY, Told
from bench.day.faults import BY_NAME
from bench.day.node_step_breakdown import count_lost_steps_by_cause
from bench.day.run_judgement import Account

WIDTH, HEIGHT, LEFT, GAP = 760, 190, 56, 46
COLOURS = {"with": "#1b6ca8", "without": "#b5541c"}


def render_result_table(accounts: Mapping[str, Account], limit: int) -> str:
    """What each run came to, side by side. `limit`: nodes that the system may hold at once."""
    rows: list[tuple[str, list[str]]] = [
        ("useful node-steps", [f"{a.useful:,}" for a in accounts.values()]),
        ("of what the jobs would have made at their pace without a stop", [f"{a.effective:.1%}" for a in accounts.values()]),
        ("node-steps trained and lost", [f"{a.lost:,}" for a in accounts.values()]),
        ("times a job was started again", [str(sum(not s.swap for s in a.stops)) for a in accounts.values()]),
        ("seconds until it trained again: median, most", [_standing(a, swap=False) for a in accounts.values()]),
        ("times a rank was replaced while the job went on", [str(sum(s.swap and not s.grown for s in a.stops)) for a in accounts.values()]),
        ("times a job went on with fewer nodes, with more again", [_resized(a) for a in accounts.values()]),
        ("seconds until the job trained again: median, most", [_standing(a, swap=True) for a in accounts.values()]),
        ("steps lost when ranks were replaced, when jobs were started again", [_lost(a) for a in accounts.values()]),
        ("jobs that did not train at the end", [str(sum(s.resumed_at is None for s in a.stops)) for a in accounts.values()]),
        ("seconds from a fault to its node held: median, most", [_noticed(a) for a in accounts.values()]),
        ("faults that call for it, whose node was never held", [_never(a) for a in accounts.values()]),
        ("sound nodes taken out by a program", [str(len(a.wrong)) for a in accounts.values()]),
        ("ranks started on a broken node (nodes)", [f"{a.missed} ({a.missed_nodes})" for a in accounts.values()]),
        ("broken nodes that a person had to find", [str(a.by_hand) for a in accounts.values()]),
        (f"most nodes held at once, by the system (allowed {limit})", [f"{max(o for _, o, _ in a.out)}, {max(o for _, _, o in a.out)}" for a in accounts.values()]),
        ("seconds a step takes, median", [f"{a.pace_s:.3f}" for a in accounts.values()]),
        ("a step trained twice gave the same loss, bit for bit", ["yes" if a.same_losses else "**no**" for a in accounts.values()]),
    ]  # fmt: skip
    head = f"| | {' | '.join(accounts)} |\n|---|{'---:|' * len(accounts)}"
    return "\n".join([head, *(f"| {name} | {' | '.join(cells)} |" for name, cells in rows)])


def render_breakdown(accounts: Mapping[str, Account]) -> str:
    """Where the node-steps go that the jobs could have made, as shares of those."""
    causes = next(iter(accounts.values())).breakdown.by_cause()
    rows = [
        f"| {cause} | {' | '.join(_share(a.breakdown.by_cause()[cause], a.wanted) for a in accounts.values())} |"
        for cause in causes
    ]
    return "\n".join([f"| | {' | '.join(accounts)} |\n|---|{'---:|' * len(accounts)}", *rows])


def _share(node_steps: float, wanted: float) -> str:
    return f"{node_steps:,.0f} ({node_steps / wanted:.1%})"


def render_stories(accounts: Mapping[str, Account]) -> str:
    """A line for each fault."""
    lines = [
        f"| at, s | node | fault | {' | '.join(accounts)} |",
        f"|---:|---|---|{'---|' * len(accounts)}",
    ]
    told = {name: {each.number: each for each in a.told} for name, a in accounts.items()}
    for number in sorted({n for each in told.values() for n in each}):
        one = next(each[number] for each in told.values() if number in each)
        cells = [_story(each[number]) if number in each else "not reached" for each in told.values()]
        lines.append(f"| {one.at_s:.0f} | {one.node} | {one.kind} | {' | '.join(cells)} |")
    return "\n".join(lines)


def render_assumptions() -> str:
    """The durations, in the field and here."""
    rows = [f"| {a.what} | {_time(a.field_s)} | {a.here:g} s | {a.source} |" for a in assumptions.ALL]
    return "\n".join(["| | in the field | here | from |", "|---|---:|---:|---|", *rows])


def render_picture(accounts: Mapping[str, Account], limit: int) -> str:
    """Useful node-steps over time, and nodes held, as SVG."""
    seconds = max(a.seconds for a in accounts.values())
    most = max(a.wanted for a in accounts.values())
    out = max(limit, *(held for a in accounts.values() for _, held, _ in a.out)) + 1
    marks = "".join(
        f'<line x1="{_x(t.at_s, seconds)}" x2="{_x(t.at_s, seconds)}" y1="20" y2="{HEIGHT}" '
        f'stroke="{"#999" if BY_NAME[t.kind].eject else "#ddd"}" stroke-dasharray="2 3"/>'
        for t in next(iter(accounts.values())).told
    )
    upper = [_line([(t, n / most) for t, n in a.progress], seconds, 0, COLOURS[name]) for name, a in accounts.items()]
    lower = [_line([(t, n / out) for t, n, _ in a.out], seconds, 1, COLOURS[name]) for name, a in accounts.items()]
    ideal = _line([(0, 0), (seconds, 1)], seconds, 0, "#bbb")
    allowed = _line([(0, limit / out), (seconds, limit / out)], seconds, 1, "#bbb")
    words = [
        _text(LEFT, 14, "useful node-steps (grey: without a stop; dashes: faults, dark ones call for a node's removal)"),
        _text(LEFT, HEIGHT + GAP - 8, f"nodes held or down (grey: what the system may hold, {limit})"),
        *(_text(LEFT + 10, 40 + 16 * n, name, COLOURS[name]) for n, name in enumerate(accounts)),
        _text(8, 30, f"{most:,.0f}"), _text(8, HEIGHT, "0"),
        _text(8, HEIGHT + GAP + 8, str(out)), _text(8, 2 * HEIGHT + GAP - 20, "0"),
        *(_text(_x(s, seconds) - 8, 2 * HEIGHT + GAP, f"{s:.0f} s") for s in (0, seconds / 2, seconds)),
    ]  # fmt: skip
    body = "\n".join([marks, ideal, allowed, *upper, *lower, *words])
    total = 2 * HEIGHT + GAP + 10
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" font-family="sans-serif" font-size="11">\n'
        f'<rect width="{WIDTH}" height="{total}" fill="#fff"/>\n{body}\n</svg>\n'
    )


def _story(told: Told) -> str:
    words = []
    if told.held_by == ALREADY:
        words.append("held already")
    elif told.held_s is not None:
        who = {"gpu-healthd": "", "health check": " by the health check", "a person": " by a person"}
        words.append(f"held after {_seconds(told.held_s)}{who.get(told.held_by, f' by {told.held_by}')}")
    elif BY_NAME[told.kind].eject:
        why = BY_NAME[told.kind].unheld
        words.append(f"never held: {why}" if why else "never held")
    if told.lost is not None:
        after = "did not train again" if told.resumed_s is None else f"trained again after {_seconds(told.resumed_s)}"
        how = "with fewer nodes" if told.grown < 0 else "with a spare in the rank's place"
        again = f"{after} {how}" if told.swap else after
        words.append(f"{told.job} {again}, {told.lost} steps lost")
    elif told.job:
        words.append(f"{told.job} stood still already" if told.standing else f"{told.job} went on")
    else:
        words.append("no job there")
    if told.bad_starts:
        words.append(f"{told.bad_starts} ranks started on it while broken")
    return "; ".join(words)


def _standing(account: Account, *, swap: bool) -> str:
    stops = [s.resumed_at - s.at for s in account.stops if s.resumed_at is not None and s.swap == swap]
    return _spread(stops, "{:.1f}" if swap else "{:.0f}")


def _resized(account: Account) -> str:
    swaps = [stop.grown for stop in account.stops if stop.swap]
    return f"{sum(grown < 0 for grown in swaps)}, {sum(grown > 0 for grown in swaps)}"


def _lost(account: Account) -> str:
    return ", ".join(str(each) for each in count_lost_steps_by_cause((stop.swap, stop.lost) for stop in account.stops))


def _noticed(account: Account) -> str:
    return _spread([t.held_s for t in account.told if t.held_s and BY_NAME[t.kind].eject], "{:.1f}")


def _never(account: Account) -> str:
    due = [t for t in account.told if BY_NAME[t.kind].eject]
    return f"{sum(t.held_s is None for t in due)} of {len(due)}"


def _spread(values: Sequence[float], form: str) -> str:
    return ", ".join(form.format(v) for v in (statistics.median(values), max(values))) if values else "–"


def _seconds(value: float) -> str:
    return f"{value:.1f} s" if value < 10 else f"{value:.0f} s"


def _time(seconds: float) -> str:
    return f"{seconds:g} s" if seconds < 120 else f"{seconds / 60:g} min" if seconds < 7200 else f"{seconds / 3600:g} h"


def _x(at: float, seconds: float) -> float:
    return round(LEFT + (WIDTH - LEFT - 20) * at / seconds, 1)


def _line(points: Iterable[tuple[float, float]], seconds: float, panel: int, colour: str) -> str:
    """`points`: seconds, and a share of the panel's height."""
    foot = HEIGHT if panel == 0 else 2 * HEIGHT + GAP - 20
    room = HEIGHT - 24 if panel == 0 else HEIGHT - 30
    text = " ".join(f"{_x(at, seconds)},{foot - room * share:.1f}" for at, share in points)
    return f'<polyline fill="none" stroke="{colour}" stroke-width="1.6" points="{text}"/>'


def _text(x: float, y: float, text: str, colour: str = "#333") -> str:
    return f'<text x="{x}" y="{y}" fill="{colour}">{text}</text>'
