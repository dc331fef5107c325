"""How findings become incidents.

Lives here: intake and grouping of findings, reopen rules, silent nodes, verdicts of the controller's own detectors.
Called by `overrides` and `pipeline`.
Pure: records and a time in, changes of the state out.
May import `decisions`, `state` and `model`.
"""
