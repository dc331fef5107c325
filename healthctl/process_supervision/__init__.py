"""Programs under a supervisor: started, restarted, and ended with everything below them, whatever happens to whoever asked.

May live here: running programs and finding them ports. May not: what the programs are.
"""
