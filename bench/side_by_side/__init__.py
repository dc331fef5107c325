"""The loss of a rank under `healthctl launch --swap`, torchft and NVIDIA's in-process restart, one after the other."""
