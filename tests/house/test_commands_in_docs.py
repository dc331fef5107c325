"""Every command that a document tells people to type exists, with every option that it is given there."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Iterator
from pathlib import Path

import click
import pytest

from tools.reference import commands
from tools.reference.table import PAGES

ROOT = Path(__file__).parents[2]
PROGRAMS = dict(commands.PROGRAMS)
FENCED = re.compile(r"^( *)```[a-z]*\n(.*?)^\1```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"(?<!`)`((?:healthctl|remediator|healthd|preflight|python -m preflight) [^`]+)`(?!`)")
OLDER = ("CHANGELOG.md", "bench/results", "docs/decisions")  # they tell of what was


def documents() -> list[Path]:
    listed = subprocess.run(["git", "ls-files", "*.md"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    made = {f"docs/reference/{name}" for name in PAGES}
    return [
        ROOT / name
        for name in listed.split()
        if name not in made and not name.startswith(OLDER) and (ROOT / name).exists()
    ]


def told(text: str) -> Iterator[str]:
    """Command lines of ours: inline, and in blocks that are not another language's."""
    yield from INLINE.findall(FENCED.sub("", text))
    for _, block in FENCED.findall(text):
        for line in block.replace("\\\n", " ").split("\n"):
            for part in re.split(r"&&|\|\||[;|] ", line):
                words = re.sub(r"^\s*(\$ |sudo (-u \S+ )?|for .* do |\w+=\S+ )*", "", part)
                if re.match(
                    r"(\S*/bin/|\$\(BIN\)/)?(healthctl|remediator|healthd|preflight|python -m preflight) ", words
                ):
                    yield words


def problems(line: str) -> Iterator[str]:
    """What no program of ours would understand. Alternatives (`lint|test`) are tried each; optional parts are parts."""
    line = re.sub(r"\s#.*$", "", line).replace("python -m preflight", "preflight").strip()
    if "…" in line or "..." in line:
        line = re.split(r"…|\.\.\.", line)[0]
    try:
        words = [word for word in shlex.split(re.sub(r"[\[\]()]", " ", line)) if not re.match(r"^[<>&]|^\d>", word)]
    except ValueError:
        return  # a quotation that goes on in the next line
    name = words[0].rpartition("/")[2]
    for first, *rest in _each([name, *words[1:]]) if name in PROGRAMS else ():
        yield from _misfits(PROGRAMS[first], rest, first)


def _each(words: list[str]) -> Iterator[list[str]]:
    for place, word in enumerate(words):
        if "|" in word and re.fullmatch(r"[a-z-]+(\|[a-z-]+)+", word):
            for one in word.split("|"):
                yield from _each([*words[:place], one, *words[place + 1 :]])
            return
    yield words


def _misfits(command: click.Command, words: list[str], path: str) -> Iterator[str]:
    context = click.Context(command, info_name=path)
    while isinstance(command, click.Group) and words and not words[0].startswith("-"):
        below = command.get_command(context, words[0])
        if below is None:
            if words[0].isupper():
                break  # a group that takes a name itself, or COMMAND
            yield f"'{path}' has no command '{words[0]}'"
            return
        command, path, words = below, f"{path} {words[0]}", words[1:]
        context = click.Context(command, info_name=words[0] if words else path, parent=context)
    if "--" in words:
        words = words[: words.index("--")]
    known = {name for p in command.get_params(context) for name in (*p.opts, *p.secondary_opts)}
    if isinstance(command, click.Group) and (listed := command.get_command(context, "list")):
        known |= {name for p in listed.params for name in p.opts}  # what such a group does when it is only named
    for word in words:
        if re.match(r"--?[a-z]", word) and word.partition("=")[0] not in known:
            yield f"'{path}' has no option '{word.partition('=')[0]}'"


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(ROOT)))
def test_what_people_are_told_to_type_exists(path: Path) -> None:
    found = [f"{problem}: {line}" for line in told(path.read_text()) for problem in problems(line)]
    assert found == []


@pytest.mark.parametrize(
    ("line", "is_wrong"),
    [
        ("healthctl status", False),
        ("healthctl nodes hold NODE 'looking at it' --for 2h", False),
        ("healthctl playbook lint|test FILE", False),
        ("healthctl launch --nodes 2 -- python train.py --steps 3", False),
        ("remediator token issue --join 'gpu-*' --uses 500 --expires 2h > join-secret", False),
        ("healthctl no-such-command", True),
        ("healthctl playbook lint|no-such FILE", True),
        ("healthctl status --no-such-option", True),
        ("remediator token issue --for-ever", True),
        ("healthd --no-such", True),
    ],
)
def test_a_wrong_command_would_be_seen(line: str, is_wrong: bool) -> None:  # noqa: FBT001 - pytest's own
    assert bool(list(problems(line))) is is_wrong


def test_commands_are_found_where_documents_have_them() -> None:
    text = "Say `healthctl status`, then:\n\n```bash\nsudo -u x /opt/gpu-healthd/bin/remediator audit verify  # daily\nX=1 healthctl nodes && ls\n```\n"
    assert [line.split("  ")[0].strip() for line in told(text)] == [
        "healthctl status",
        "/opt/gpu-healthd/bin/remediator audit verify",
        "healthctl nodes",
    ]
