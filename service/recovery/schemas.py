"""What the API says about going back to a clean checkpoint."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from pydantic import BaseModel

from service.detect.recovery import Checkpoint, Recovery
from service.runs.fields import Time

NOTHING = "No rule says that something is wrong: there is nothing to go back for."


class CheckpointAnswer(BaseModel):
    """Weights that were saved; tokens are on the project's axis, null where not known."""

    step: int
    tokens: float | None
    where: str
    at: Time | None


class CostAnswer(BaseModel):
    """What a restart does again; null where not known. `hours` are of the run's own pace."""

    steps: int
    tokens: float | None
    hours: float | None
    hours_source: str


class ForkAnswer(BaseModel):
    """A run that was forked from this one. `stays_clean`: yes, no, or cannot tell, by its own verdict and alerts.

    `started_clean`: whether it began before the onset; null where nothing is wrong with the parent."""

    run: UUID
    name: str
    from_step: int
    last_step: int | None
    verdict: str | None
    open_alerts: int
    stays_clean: str
    started_clean: str | None


class RecoveryAnswer(BaseModel):
    """What now: `clean` surely holds no wrong update, `unsure` may hold some; `affected` counts those that surely do.

    `needed` is false where no rule says that something is wrong; then there is no onset, checkpoint or cost."""

    run: UUID
    needed: bool
    since_step: tuple[int, int] | None
    clean: CheckpointAnswer | None
    unsure: list[CheckpointAnswer]
    affected: int
    cost: CostAnswer | None
    summary: str
    forks: list[ForkAnswer]


def recovery_answer(run: UUID, found: Recovery | None, forks: Sequence[ForkAnswer]) -> RecoveryAnswer:
    """What was found, as the API gives it; None: nothing is wrong."""
    if found is None:
        return RecoveryAnswer(
            run=run,
            needed=False,
            since_step=None,
            clean=None,
            unsure=[],
            affected=0,
            cost=None,
            summary=NOTHING,
            forks=list(forks),
        )
    cost = found.cost
    return RecoveryAnswer(
        run=run,
        needed=True,
        since_step=found.since_step,
        clean=None if found.clean is None else _checkpoint(found.clean),
        unsure=[_checkpoint(c) for c in found.unsure],
        affected=found.affected,
        cost=None
        if cost is None
        else CostAnswer(steps=cost.steps, tokens=cost.tokens, hours=cost.hours, hours_source=cost.hours_source),
        summary=" ".join([found.summary, *(_told(fork) for fork in forks)]),
        forks=list(forks),
    )


def _checkpoint(found: Checkpoint) -> CheckpointAnswer:
    return CheckpointAnswer(step=found.step, tokens=found.tokens, where=found.where, at=found.at)


def _told(fork: ForkAnswer) -> str:
    began = {"yes": "a clean step", "no": "a step that is affected"}.get(fork.started_clean or "", "an unsure step")
    stays = {"yes": "stays clean", "no": "does not stay clean"}.get(fork.stays_clean, "cannot be told clean yet")
    return f"The fork {fork.name} from step {fork.from_step:,} ({began}) {stays}."
