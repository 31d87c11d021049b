"""A proxy for speech: what an upstream server says is marked on its way."""
