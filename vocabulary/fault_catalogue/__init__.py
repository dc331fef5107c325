"""The catalogue of Xids and SXids: entries, the rules that read a line, the NVLink tables, and the file loader.

healthd, remediator and healthctl load it once.
May import `driver_log` and `finding`. Only `catalogue_file` reads files; the other modules are pure.
"""
