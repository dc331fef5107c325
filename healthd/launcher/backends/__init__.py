"""One file per scheduler: local processes, a Slurm allocation, a Kubernetes pod.

Called by `launch_loop` through the `scheduler_backend` protocol, and by `healthctl launch`, which picks one.
May import all of `healthd.launcher` but `launch_loop`.
"""
