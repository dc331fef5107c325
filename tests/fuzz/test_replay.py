"""What former campaigns found worth keeping, once more; the long campaigns are `make fuzz`."""

from __future__ import annotations

import pytest

from tests.fuzz.registry import SHARES, target
from tests.fuzz.target import CORPUS, corpus_of


@pytest.mark.parametrize("name", SHARES)
def test_every_kept_case_keeps_the_properties(name: str) -> None:
    chosen = target(name)
    for case in (b"", *chosen.seeds, *corpus_of(name)):
        chosen.judge(case)


def test_nothing_is_kept_for_a_target_that_is_gone() -> None:
    targets = {file.stem for file in CORPUS.with_name("targets").glob("*.py")}
    assert targets == set(SHARES)
    assert {file.stem for file in CORPUS.iterdir()} <= targets
