"""The launcher's pure decisions.

Whether and where to start again, whether a crash is the command's own, whether an ordered leave is verified.
Called by `launch_loop` and `rank_monitor`.
May import `trainer.exit_codes` and `rank_pages`; starts and queries nothing.
"""
