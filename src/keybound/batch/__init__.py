"""Whole corpora: manifests, what remains, what is done, processes and Ray."""
