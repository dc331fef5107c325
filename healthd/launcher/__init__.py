"""`healthctl launch`: starts the ranks on fit nodes, and restarts the job without a failed node.

Holds the loop, one backend per scheduler (`backends`), the pure `decisions`, and `process_groups`. Called by `healthctl
launch`. May import `trainer` and `vocabulary`: it knows the trainer only by exit codes and pages, and healthd only by
its UNIX socket: it asks for a verdict, and hands over its swaps.
"""
