"""Corpora: a whole manifest, folder or glob marked, detected or verified, over cores or on Ray."""
