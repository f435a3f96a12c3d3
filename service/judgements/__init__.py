"""Judgements and verdicts of runs: how they are made from what is stored, and how they are read."""
