"""What a training run reads: rows, and the Grain loaders that share them out over hosts."""
