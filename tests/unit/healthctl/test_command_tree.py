"""Every command and option there is, walked: help, examples, one spelling for one thing, and a light start."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from healthctl.main import cli

NEVER_FOR_HELP = {"torch", "sqlalchemy", "pyarrow", "uvicorn"}
# One meaning, one word. What is refused, and what is written instead.
SYNONYMS = {
    "--output-file": "--out",
    "--outfile": "--out",
    "--dest": "--out",
    "--directory": "--dir",
    "--workdir": "--dir",
    "--json": "--output",
    "--nodename": "--node",
    "--host": "--node",
    "--hostname": "--node",
    "--max": "--limit",
    "--count": "--limit",
    "--force": "--yes",
    "--url": "--server",
    "--token": "--token-file",
    "--conf": "--config",
    "--configuration": "--config",
    "--duration": "--for",
    "--follow-up": "--follow",
    "--interval": "--watch",
    "--dryrun": "--dry-run",
    "--no-colour": "--no-color",
}
# There it is no yes to a question of ours, but goes on against the controller's own refusal.
OTHER_MEANING = {("healthctl nodes uncordon", "--force")}
# preflight is a program of its own too, `python -m preflight`, whose -f is a file.
OWN_LETTERS = {"healthctl preflight"}


def walk(command: click.Command, context: click.Context) -> Iterator[tuple[str, click.Command]]:
    yield context.command_path, command
    if isinstance(command, click.Group):
        for name in command.list_commands(context):
            below = command.get_command(context, name)
            assert below is not None, f"{context.command_path} lists {name} and does not have it"
            with click.Context(below, info_name=name, parent=context) as inner:
                yield from walk(below, inner)


TREE = dict(walk(cli, cli.make_context("healthctl", [], resilient_parsing=True)))
TOP = {path for path in TREE if path.count(" ") == 1}
LEAVES = {path for path, command in TREE.items() if not isinstance(command, click.Group)}
TYPED = sorted(TOP | LEAVES)


def options(command: click.Command) -> list[click.Option]:
    return [param for param in command.params if isinstance(param, click.Option) and not param.hidden]


@pytest.mark.parametrize("path", TREE)
def test_a_command_says_in_a_sentence_what_it_is_for(path: str) -> None:
    first = (TREE[path].help or "").split("\n\n")[0].strip()
    assert first.endswith((".", "?")), f"{path}: {first!r}"
    assert len(first.split()) >= 3, f"{path}: {first!r}"


@pytest.mark.parametrize("path", TREE)
def test_an_option_has_a_word_of_help(path: str) -> None:
    silent = [option.opts for option in options(TREE[path]) if not (option.help or "").strip()]
    assert not silent


@pytest.mark.parametrize("path", TYPED)
def test_a_command_has_an_example_that_begins_as_one_types_it(path: str) -> None:
    told = f"{TREE[path].epilog or ''} {TREE[path].help or ''}"
    assert re.search(rf"Examples?: .*{path}\b", told), told


@pytest.mark.parametrize("path", TYPED)
def test_an_example_names_commands_and_options_that_are_there(path: str) -> None:
    examples = re.sub(r"Exit codes:.*|[A-Z][a-z' ]+ (it|asks)\b.*", "", TREE[path].epilog or "")
    for example in re.findall(r"healthctl [^;|]*", examples):
        words = example.strip().rstrip(".").split()
        deepest = next(" ".join(words[:n]) for n in range(len(words), 0, -1) if " ".join(words[:n]) in TREE)
        known = {spelled for option in options(TREE[deepest]) for spelled in option.opts}
        used = {word for word in words if re.fullmatch(r"--?[a-z][a-z-]*", word)} - {"-o", "--watch"}
        command = TREE[deepest]
        if isinstance(command, click.Group):  # it shows or lists by default, with the options of that
            shown = TREE.get(f"{deepest} {getattr(command, 'default', 'list')}")
            known |= {spelled for option in options(shown) for spelled in option.opts} if shown else set()
        assert used <= known, f"{example!r}: {used - known} is not an option of {deepest}"


def test_options_are_spelled_alike_everywhere() -> None:
    letters: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for path, command in TREE.items():
        place = next((own for own in OWN_LETTERS if path.startswith(own)), "healthctl")
        for option in options(command):
            for spelled in option.opts:
                assert re.fullmatch(r"--[a-z][a-z0-9]*(-[a-z0-9]+)*|-[a-zA-Z]", spelled), f"{path} {spelled}"
                known = spelled not in SYNONYMS or (path, spelled) in OTHER_MEANING
                assert known, f"{path} {spelled}: siblings say {SYNONYMS[spelled]}"
            short = [spelled for spelled in option.opts if not spelled.startswith("--")]
            (long, *_) = [spelled for spelled in option.opts if spelled.startswith("--")]
            letters[place][long].add("".join(short))
            for letter in short:
                letters[place][letter].add(long)
    for place, found in letters.items():
        assert {spelled: with_ for spelled, with_ in found.items() if len(with_) > 1} == {}, place


def test_one_option_has_one_kind_of_value_for_people() -> None:
    """Spans of time are written 5m everywhere, files are paths."""
    kinds = defaultdict(set)
    for command in TREE.values():
        for option in options(command):
            if option.opts[0] in {"--for", "--expires", "--config", "--out", "--token-file", "--ca-file", "--server"}:
                kinds[option.opts[0]].add(type(option.type).__name__)
    assert {name: found for name, found in kinds.items() if len(found) > 1} == {}


def test_every_help_is_shown_for_h_and_stays_light() -> None:
    script = (
        "import sys, json\nfrom click.testing import CliRunner\nfrom healthctl.main import cli\n"
        "heavy = {}\n"
        f"for path in {[path.split()[1:] for path in TREE]!r}:\n"
        "    done = CliRunner().invoke(cli, [*path, '-h'], prog_name='healthctl')\n"
        "    assert done.exit_code == 0 and 'Usage: healthctl' in done.output, (path, done.output)\n"
        f"    for name in {sorted(NEVER_FOR_HELP)!r}:\n"
        "        if name in sys.modules: heavy.setdefault(name, ' '.join(path))\n"
        "print(json.dumps(heavy))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True, timeout=100)
    assert json.loads(done.stdout) == {}


def test_wrong_usage_names_the_command_it_is_about() -> None:
    done = CliRunner().invoke(cli, ["nodes", "show", "--bogus"], prog_name="healthctl")
    assert done.exit_code == 2
    assert "healthctl nodes show --help" in done.output


@pytest.mark.parametrize("path", TREE)
def test_a_group_tells_of_each_command_in_a_whole_sentence(path: str) -> None:
    shown = CliRunner().invoke(cli, [*path.split()[1:], "--help"], prog_name="healthctl", terminal_width=80).output
    assert not [line for line in shown.splitlines() if re.fullmatch(r"  [a-z-]+ .*\.\.\.", line)], (
        "its first sentence is too long"
    )


@pytest.mark.parametrize("path", TREE)
def test_what_may_be_given_several_times_says_so(path: str) -> None:
    several = [option for option in options(TREE[path]) if option.multiple]
    assert not [option.opts for option in several if "repeated" not in (option.help or "")]


@pytest.mark.parametrize("path", sorted(set(TREE) - {"healthctl"}))
def test_a_group_has_an_example_too(path: str) -> None:
    assert "Example" in f"{TREE[path].epilog or ''} {TREE[path].help or ''}"
