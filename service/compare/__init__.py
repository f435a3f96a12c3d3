"""Comparing a run with its reference: alignment on tokens, gaps, noise, overviews. Pure numpy."""
