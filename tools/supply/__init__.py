"""What others' work is in ours: read from the lock files, told as a bill of materials, and asked about."""
