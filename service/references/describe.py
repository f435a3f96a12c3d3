"""What a stored reference says, in the words of those who compare with it."""

from __future__ import annotations

from service.database.models import Reference
from service.detect.inputs import Tolerance
from service.references.description import Description, Heldout, Stage, Task


def description(reference: Reference) -> Description:
    """The checked content of its reference.toml and schedule.toml."""
    return Description.model_validate(reference.description)


def stage(reference: Reference, name: str) -> Stage | None:
    """One stage: how many steps, tokens per step, and where it lies on the project's token axis."""
    return description(reference).stage(name)


def tolerances(reference: Reference) -> dict[str, Tolerance]:
    """How far a healthy reproduction may wander, by metric."""
    return {
        metric: Tolerance(entry.value, entry.source, entry.runs, entry.noise_sd, entry.window_steps)
        for metric, entry in description(reference).tolerance.items()
    }


def primary_heldout(reference: Reference) -> str:
    """The metric of the held-out set that counts first, "" if the reference has none."""
    sets: list[Heldout] = description(reference).heldout
    return next((entry.metric for entry in sets if entry.primary), "")


def tasks(reference: Reference) -> list[Task]:
    """The tasks whose accuracy is followed, in the bundle's order."""
    return description(reference).tasks
