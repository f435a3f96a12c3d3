"""What the API says about declared deviations."""

from __future__ import annotations

import math
import re
from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AwareDatetime, BaseModel, ConfigDict, Field

from service.database.models import DeclaredDeviation
from service.rules.schemas import Who, Words
from service.runs.fields import Time, rfc3339

Item = Literal[
    "data", "order", "tokenizer", "loss", "optimizer", "schedule", "init", "precision", "evaluation", "other"
]  # fmt: skip
Step = Annotated[int, Field(ge=0, le=2**53 - 1)]
Tokens = Annotated[float, Field(ge=0, allow_inf_nan=False)]
METRIC = re.compile(r"train/ce_loss|heldout/.+/ce_loss|downstream/.+/accuracy")


class NewDeviation(BaseModel):
    """A known difference from the reference's recipe: `item` is the part of the recipe it is in.

    `budgets`: metric -> how far the run may lie from the reference because of it, in nats (losses) or as a difference
    of accuracy, with its sign. It counts from `from_step` and `from_tokens` on to the first of its ends, inclusive; one
    end must be given. Tokens are on the project's axis; a date is compared with the times of the run's own points."""

    model_config = ConfigDict(extra="forbid")

    text: Annotated[Words, Field(min_length=1, max_length=2000)]
    item: Item
    budgets: dict[Annotated[Words, Field(min_length=1, max_length=256)], float] = Field(min_length=1, max_length=64)
    from_step: Step = 0
    from_tokens: Tokens | None = None
    end_step: Step | None = None
    end_tokens: Tokens | None = None
    end_at: AwareDatetime | None = None
    by: Who

    def wrong(self) -> tuple[str, str] | None:
        """The field that cannot be, and why."""
        for metric, budget in self.budgets.items():
            if METRIC.fullmatch(metric) is None:
                losses = "train/ce_loss, heldout/SET/ce_loss and downstream/TASK/accuracy"
                return f"budgets.{metric}", f"has no budget; these may: {losses}"
            if not math.isfinite(budget) or budget == 0.0:
                return f"budgets.{metric}", f"is {budget}; expected a signed number other than 0, such as -0.02"
            if metric.endswith("/accuracy") and abs(budget) > 1.0:
                return f"budgets.{metric}", f"is {budget}; a difference of accuracy is between -1 and 1"
        if self.end_step is None and self.end_tokens is None and self.end_at is None:
            return "end_step", "give an end (end_step, end_tokens or end_at); the stage's last step if it lasts so long"
        if self.end_step is not None and self.end_step < self.from_step:
            return "end_step", f"lies before from_step ({self.from_step})"
        if self.end_tokens is not None and self.end_tokens < (self.from_tokens or 0.0):
            return "end_tokens", f"lies before from_tokens ({self.from_tokens:.0f})"
        return None


class DeviationEnd(BaseModel):
    """Where a deviation ends; by default at the run's newest step."""

    model_config = ConfigDict(extra="forbid")

    end_step: Step | None = None
    by: Who
    reason: Words = Field(default="", max_length=4000)


class DeviationAnswer(BaseModel):
    """A declared deviation. `state` at the run's newest step: "in force", "not begun" or "ended"."""

    id: UUID
    text: str
    item: str
    budgets: dict[str, float]
    from_step: int
    from_tokens: float | None
    end_step: int | None
    end_tokens: float | None
    end_at: Time | None
    state: str
    by: str
    declared_at: Time


class DeviationList(BaseModel):
    """The deviations of a run, in the order in which they were declared; ended ones too."""

    run: UUID
    items: list[DeviationAnswer]


def deviation_answer(row: DeclaredDeviation, state: str) -> DeviationAnswer:
    """A deviation as the API gives it."""
    return DeviationAnswer(
        id=row.uuid,
        text=row.description,
        item=row.item,
        budgets=row.budgets,
        from_step=row.from_step,
        from_tokens=row.from_tokens,
        end_step=row.end_step,
        end_tokens=row.end_tokens,
        end_at=row.end_at,
        state=state,
        by=row.declared_by,
        declared_at=row.declared_at,
    )


def deviation_body(row: DeclaredDeviation) -> dict[str, Any]:
    """What was declared, in JSON types, for the record of changes."""
    names = ("item", "budgets", "from_step", "from_tokens", "end_step", "end_tokens")
    end_at = None if row.end_at is None else rfc3339(row.end_at)
    return {"text": row.description, **{name: getattr(row, name) for name in names}, "end_at": end_at}
