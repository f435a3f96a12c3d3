"""Settings of rules, per project and run: what was set, by whom, and what it would change."""
