"""Alerts: one episode of one family of rules on one run, from its first message to its last."""
