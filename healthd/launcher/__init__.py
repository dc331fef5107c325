"""`healthctl launch`: start the ranks on fit nodes, and bring the job back without the node that had to go.

May live here: the plan (pure), the loop, one backend per scheduler. Knows the trainer only by its exit codes, and healthd
only by its verdict.
"""
