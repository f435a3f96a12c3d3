"""Judging a run again as it grew, by the code that judges live."""
