"""Recordings: read, write, resample, feed block by block. Knows no keys and no networks."""
