"""Carries out planned actions of the controller.

Lives here: the action executor, which asks the scheduler and hands messages over, and the scheduler's health.
Started by `serving` for one leader term; `api` reads its status.
It acts only on what is committed, and reports each outcome back as an input.
May import `engine`, `notifications`, `schedulers`, `overrides`, `decisions`, `store` and `model`.
"""
