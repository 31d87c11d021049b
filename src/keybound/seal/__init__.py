"""The keyed spread-spectrum layer beside the learned mark."""
