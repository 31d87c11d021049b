"""A service over HTTP: the public detector with its page, and marking and verdicts with tokens."""
