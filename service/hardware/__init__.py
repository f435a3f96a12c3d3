"""What a run is trained on: devices and their peak, what changed between two starts, and how well it is used."""
