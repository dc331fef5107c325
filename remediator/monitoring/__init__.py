"""Detectors that judge the reports of many nodes together, beside the decision thread.

Lives here: step windows, analysis passes, straggler, hang and lemon findings, GPU counts, silent nodes and topology.
Started by `serving` for one leader term; `api` reads its status.
Its results reach the engine as inputs, so the journal has them before anything follows.
May import `engine`, `fleet`, `store`, `schedulers`, `detection`, `incidents`, `state` and `model`.
"""
