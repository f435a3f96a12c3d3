"""The model and its checkpoints."""
