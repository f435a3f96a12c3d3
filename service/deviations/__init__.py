"""Declared deviations: known differences of a run from its reference, with a budget and an end."""
