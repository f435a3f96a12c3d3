"""What reference.toml says, checked field by field."""

from __future__ import annotations

from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, model_validator

from service.references.data_order import DataOrder
from service.references.schedule import Piece

Text = Annotated[str, Field(min_length=1, max_length=4096)]
Name = Annotated[str, Field(min_length=1, max_length=256)]
Count = Annotated[int, Field(gt=0)]


class Strict(BaseModel):
    """A table of reference.toml; a key it does not know is an error, so that a typing mistake is seen."""

    model_config = ConfigDict(extra="forbid")


class Source(Strict):
    """Where the numbers come from."""

    url: str = ""
    retrieved: str = ""
    licence: Text
    citation: Text


class Loss(Strict):
    """What exactly the training loss is, and whether that was proven (by equal losses on equal batches).

    `z_loss`: whether z-loss is in it; `scored_share`: scored tokens over consumed ones."""

    metric: Name = "train/ce_loss"
    unit: Name = "nats per token"
    definition: Text
    proven: bool = False
    z_loss: bool | None = None
    scored_share: Annotated[float, Field(gt=0, le=1)] | None = None


class Stage(Strict):
    """One stage. `series` is a file of the bundle, None where no numbers are at hand."""

    name: Name
    title: str = ""
    steps: Count
    tokens_per_step: Count
    token_offset: Annotated[float, Field(ge=0)] = 0.0
    series: str | None = None


class Task(Strict):
    """One task whose accuracy is followed: `original` is its name at the source, `published` whether values exist."""

    key: Name
    items: Count
    metric: Name
    title: str = ""
    original: str = ""
    published: bool = True


class Heldout(Strict):
    """One held-out set. `id` tells equal sets apart from equally named ones; the primary one counts first."""

    name: Name
    metric: Name
    id: Name
    title: str = ""
    original: str = ""
    convention: str = ""
    primary: bool = False


class ToleranceEntry(Strict):
    """How far a healthy reproduction may wander in one metric (see service.detect.inputs.Tolerance)."""

    value: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    unit: Text
    source: Text
    runs: Annotated[int, Field(ge=0)] = 0
    noise_sd: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    window_steps: Count | None = None


class Silent(Strict):
    """A launch that logged nothing: `place` among the stage's launches, counted from 0 in order of launch."""

    stage: str
    segment: str
    launched: Annotated[float, Field(allow_inf_nan=False)] | None = None  # unix seconds
    note: str = ""
    place: Annotated[int, Field(ge=0)]


class Description(Strict):
    """The whole of reference.toml, the schedule, the launches of segments.csv that have no points, and order.json."""

    slug: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9._-]*$", max_length=256)]
    version: Annotated[str, Field(min_length=1, max_length=64)]
    title: Annotated[str, Field(min_length=1, max_length=512)]
    project: Name | None = None  # the slug, where not given
    source: Source
    loss: Loss | None = None
    recipe: dict[str, Any] = Field(default_factory=dict)
    stages: Annotated[list[Stage], Field(min_length=1)]
    tasks: list[Task] = Field(default_factory=list[Task])
    heldout: list[Heldout] = Field(default_factory=list[Heldout])
    tolerance: dict[str, ToleranceEntry] = Field(default_factory=dict[str, ToleranceEntry])
    conflicts: list[Text] = Field(default_factory=list[Text])
    schedule: list[Piece] = Field(default_factory=list[Piece])
    silent: list[Silent] = Field(default_factory=list[Silent])
    data_order: dict[str, DataOrder] = Field(default_factory=dict[str, DataOrder])  # by stage

    @model_validator(mode="after")
    def _consistent(self) -> Description:
        names = [stage.name for stage in self.stages]
        _no_doubles("stages", "name", names)
        _no_doubles("tasks", "key", [task.key for task in self.tasks])
        _no_doubles("heldout", "metric", [entry.metric for entry in self.heldout])
        primary = sum(entry.primary for entry in self.heldout)
        if self.heldout and primary != 1:
            raise ValueError(f"heldout: exactly one set must be primary, {primary} are")
        for piece in self.schedule:
            if piece.stage not in names:
                raise ValueError(f"schedule.toml: there is no stage {piece.stage!r}; the stages are {', '.join(names)}")
        for stage in self.data_order:
            if stage not in names:
                raise ValueError(f"order.json: there is no stage {stage!r}; the stages are {', '.join(names)}")
        return self

    def stage(self, name: str) -> Stage | None:
        """The stage of that name."""
        return next((stage for stage in self.stages if stage.name == name), None)


def _no_doubles(table: str, key: str, values: list[str]) -> None:
    for value in values:
        if values.count(value) > 1:
            raise ValueError(f"{table}: {key} {value!r} is given twice")
