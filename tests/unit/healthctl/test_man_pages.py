from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import click
from click.testing import Result
from hypothesis import given
from hypothesis import strategies as st

from healthctl.cli.man_pages import _escape_roff, render_man_page
from healthctl.main import COMMANDS
from tests.conftest import skip_or_fail

Run = Callable[..., Result]


def test_every_command_has_a_page_that_a_formatter_takes(healthctl: Run, tmp_path: Path) -> None:
    done = healthctl("man", "--dir", str(tmp_path))
    assert done.exit_code == 0, done.output
    names = {path.name for path in tmp_path.iterdir()}
    assert names == {"healthctl.1", *(f"healthctl-{name}.1" for name in COMMANDS)}
    if shutil.which("groff") is None:
        skip_or_fail("no groff here")
    judged = subprocess.run(
        ["groff", "-man", "-Tutf8", "-ww", "-z", *sorted(map(str, tmp_path.iterdir()))],
        capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip
    assert (judged.returncode, judged.stderr) == (0, "")


def test_a_page_holds_every_command_and_option_below_it(healthctl: Run) -> None:
    text = healthctl("man", "token").stdout
    for words in ("healthctl token join [OPTIONS] PATTERN", "\\-\\-uses", "\\-\\-store", ".SH EXIT STATUS", ".SH NAME"):
        assert words in text, words


def test_the_front_page_names_every_other(healthctl: Run) -> None:
    text = healthctl("man").stdout
    assert all(f".BR healthctl\\-{name} (1)" in text for name in COMMANDS)


def test_a_mistyped_command_is_told_the_nearest(healthctl: Run) -> None:
    done = healthctl("man", "nods")
    assert (done.exit_code, "did you mean 'nodes'?" in done.output) == (2, True)


@given(st.text())
def test_no_text_is_a_request_or_breaks_its_line(text: str) -> None:
    line = _escape_roff(text)
    assert line.isascii()
    assert "\n" not in line
    assert not line.startswith((".", "'"))
    assert line.count("\\") == line.replace("\\e", "").count("\\") + text.count("\\")


def test_what_help_says_stands_in_the_page_word_for_word() -> None:
    @click.command(epilog="See .also")
    @click.option("--mode", help="The -fast one, or 'slow'.")
    def run() -> None:
        """Do it.

        \b
        a  first
        .b second
        """

    with click.Context(run, info_name="run", parent=click.Context(click.Group("x"), info_name="x")) as ctx:
        text = render_man_page(run, ctx, "1.2")
    assert "\\-\\-mode TEXT\nThe \\-fast one, or \\(aqslow\\(aq." in text
    assert ".nf\na  first\n\\&.b second\n.fi" in text
    assert "See .also" in text
