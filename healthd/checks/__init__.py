"""Pure: samples in, raised and cleared facts out; one file per concern. No clock, no files, no logging."""
