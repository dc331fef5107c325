"""The node's HTTP client for the controller.

Holds the six API calls, their errors, retry back-off and enrolment.
Called by `reporting`, `orders` and `service_threads`; also by `healthctl`.
May import `config`, `host` and `vocabulary`; nothing of samples, checks or storage.
"""
