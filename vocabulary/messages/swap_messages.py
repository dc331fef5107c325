"""How the ranks of a job were replaced while it ran (`healthctl launch --swap`): from the launcher by healthd to the controller.

The launcher sends the newest swaps of its job again and again, and each report of the node repeats them: what is lost
on the way comes with the next one, and nothing has to be stored.
"""

from __future__ import annotations

import enum
from typing import Annotated

import msgspec

from vocabulary.messages.message_bounds import Count, Moment, Name, Number, Whole, Word

SWAPS_PATH = "/v1/swaps"  # of healthd's UNIX socket
SWAPS_BYTES_MAX = 16 << 10  # of one job's message
SWAPS_PER_JOB_MAX = 16
LOST_RANKS_MAX = 16  # listed; `lost_ranks` counts all
PHASES_MAX = 8
REASON_CHARS_MAX = 300


class SwapOutcome(str, enum.Enum):
    """What became of a swap. A newer launcher may know more, so messages carry plain text."""

    UNDER_WAY = "under way"
    SWAPPED = "swapped"
    SHRUNK = "shrunk"
    GROWN = "grown"
    RESUMED = "resumed"  # as before: the newcomer that the ranks had paused for died
    GIVEN_UP = "given up"  # all ranks end
    RESTARTED = "restarted"  # after that, by a new attempt


class LostRank(msgspec.Struct, frozen=True, omit_defaults=True):
    """A rank that was lost on `node`; `after` is the node of the spare that took it over, empty if none did."""

    rank: Whole
    node: Name
    after: Name = ""


class JobSwap(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One swap. Times are UTC seconds, durations seconds; None: not known, or not yet.

    `at` is when the loss was seen, or when a larger job began to form. `generation` is the one that followed. `seconds`
    are until its first step was done, `phases` parts of them. `lost_steps` had been finished, and were trained again.
    `ranks` and `ranks_before` are there if their number changed. `source` is where the state came from.
    """

    job: Name
    attempt: Whole
    at: Moment
    outcome: Word
    generation: Whole = -1
    lost: Annotated[tuple[LostRank, ...], msgspec.Meta(max_length=LOST_RANKS_MAX)] = ()
    lost_ranks: Count = 0
    seconds: Number | None = None
    phases: Annotated[dict[Word, Number], msgspec.Meta(max_length=PHASES_MAX)] = {}
    lost_steps: Whole | None = None
    step: Whole | None = None
    ranks: Count = 0
    ranks_before: Count = 0
    source: Name = ""
    reason: Annotated[str, msgspec.Meta(max_length=REASON_CHARS_MAX)] = ""


class JobSwaps(msgspec.Struct, frozen=True):
    """The body of `POST /v1/swaps` on healthd's UNIX socket: all that its launcher knows of one job, oldest first."""

    job: Annotated[str, msgspec.Meta(min_length=1, max_length=255)]
    swaps: Annotated[tuple[JobSwap, ...], msgspec.Meta(max_length=SWAPS_PER_JOB_MAX)]
