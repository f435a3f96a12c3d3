"""The lab: a corpus, a base checkpoint and evaluations small enough that two CPU cores re-train a run in a minute."""
