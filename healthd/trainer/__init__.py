"""What a training process imports: standard library only. torch is imported nowhere here but in `adapters`."""
