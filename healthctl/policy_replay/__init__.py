"""What the centre was told and decided, read back from its database or from an export.

May live here: reading a record, and saying what two runs over it have and have not in common. May not: deciding; that is
`remediator.replay.journal_replay`.
"""
