"""Judging a run beside its reference: pure functions, series in, judgements with evidence out."""
