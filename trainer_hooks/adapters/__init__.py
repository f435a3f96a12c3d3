"""Trainers and metric writers that the hook attaches to without a change in their code (docs/adapters.md).

Each module imports its trainer, so import only the one that is used.
"""
