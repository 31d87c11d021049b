"""Keys, codes and signatures. Knows no audio, no networks and no files but key files."""
