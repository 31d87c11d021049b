"""Which recording it is: fingerprints, records, the registry, the content tag."""
