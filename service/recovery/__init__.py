"""What now: the last clean checkpoint, what a restart from it costs, and how forks fare."""
