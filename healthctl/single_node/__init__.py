"""This machine as a cluster of one: its files, its two programs, and what it lacks.

May live here: what `healthctl up` starts and says. May not: anything that decides or measures; that is the programs' own.
"""
