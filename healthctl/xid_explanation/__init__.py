"""Explains an Xid or SXid: parses the query, looks it up in the catalogue, renders the explanation.

`healthctl xid explain` calls it.
It may import `kernel_log`, `rendering` and `vocabulary`. Pure: text and catalogue in, text out.
"""
