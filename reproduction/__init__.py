"""A complete small reproduction: a model in OLMo 3's shape, trained in JAX, that reports through `trainer_hooks`."""
