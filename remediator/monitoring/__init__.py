"""What many nodes' words say together, judged beside the deciding thread: who is slow, who hangs, who is a lemon. Its findings are inputs."""
