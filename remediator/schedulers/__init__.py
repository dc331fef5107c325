"""Effects on the world, one file each.

May live here: backends of the scheduler protocol (a state to hold), deeds done once (orders, notices).
May not: deciding. A backend checks its own precondition right before it acts and may answer "refused".
"""
