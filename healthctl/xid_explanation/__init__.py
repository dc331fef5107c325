"""Explains an Xid or SXid: parses what was asked, looks it up in the catalogue, renders the answer.

`healthctl xid explain` calls it.
It may import `kernel_log`, `rendering` and `vocabulary`. Pure: text and catalogue in, text out.
"""
