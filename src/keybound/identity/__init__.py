"""Identifiers: the number of a recording, spelled by the codes of its successive seconds."""
