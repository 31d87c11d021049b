"""The two networks, what their frames prove, and the shipped weights. Knows no keys."""
