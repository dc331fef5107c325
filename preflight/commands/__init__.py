"""What a person may ask of preflight, one file per command; the same behind ``python -m preflight`` and ``healthctl preflight``."""
