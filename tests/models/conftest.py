"""The models' tests compare the stories of broken rules with golden files, as unit tests do with theirs."""

from __future__ import annotations

from tests.unit.conftest import golden

__all__ = ["golden"]
