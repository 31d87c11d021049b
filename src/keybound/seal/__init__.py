"""The keyed spread-spectrum layer beside the learned mark, and the rolling code."""
