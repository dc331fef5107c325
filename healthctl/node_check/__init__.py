"""`healthctl node check`: the local verdict in the words of whoever asks. Light: a prolog waits for it before every job."""
