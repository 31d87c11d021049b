"""Training: the only room with torch. It sees random codes, never a key."""
