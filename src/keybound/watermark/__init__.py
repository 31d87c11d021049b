"""Where keys, audio, networks and records meet: streams, arrays, files, verdicts."""
