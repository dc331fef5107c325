"""Reads a kernel log in any dress, line by line. Pure: lines in, judgements out; opening files is the command's part."""
