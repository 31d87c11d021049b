"""Which recording it is: fingerprints, records, the registry."""
