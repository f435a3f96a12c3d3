"""What a declared deviation would explain away on a run's stored points, and what it would leave. Saves nothing."""

from __future__ import annotations

from dataclasses import replace
from uuid import UUID

from service.backtests.stored import NothingToJudgeError, timeline_of_run
from service.context import Context
from service.database.engine import reading
from service.detect.inputs import Deviation
from service.deviations.schemas import NewDeviation
from service.errors import NotFoundError, field_error
from service.judgements.view import UnknownReferenceError
from service.rules.preview import in_words, preview_views
from service.rules.previewing import MOST_LOOKS, PreviewAnswer, answer
from service.rules.scopes import place_of_run

RULE = "all rules"


def preview_deviation(context: Context, run_id: UUID, body: NewDeviation, every: int | None = None) -> PreviewAnswer:
    """What would have been said, and when, with this deviation declared beside those there are; nothing is saved. Looks
    are `every` steps apart, by default a 200th of the run. Judges the run twice.

    Raises:
        InvalidError: the deviation cannot be, or gives too many looks.
        NotFoundError: there is no such run, or nothing of it to judge.
    """
    wrong = body.wrong()
    if wrong is not None:
        raise field_error(*wrong)
    if body.end_at is not None:
        raise field_error("end_at", "cannot be tried; give the end as end_step or end_tokens")
    tried = Deviation(
        body.text, body.item, body.budgets, body.from_step, body.from_tokens, body.end_step, body.end_tokens, body.by
    )
    with reading(context.engine) as session:
        run = place_of_run(session, run_id).run
        assert run is not None
        try:
            timeline = timeline_of_run(session, run)
        except (UnknownReferenceError, NothingToJudgeError) as error:
            raise NotFoundError(f"There is nothing to judge: {error}.") from error
    span = sum(last - first + 1 for first, last in timeline.spans)
    if every is not None and (every < 1 or span // every > MOST_LOOKS):
        raise field_error("every", f"must give 1 to {MOST_LOOKS:,} looks; take {span // MOST_LOOKS + 1:,} or more")
    views = [replace(view, deviations=[*view.deviations, tried]) for view in timeline.views]
    found = preview_views(timeline, views, every)
    return PreviewAnswer(
        run=run_id, rule=RULE, every=found.every, changes=in_words(found),
        before=[answer(s) for s in found.before], after=[answer(s) for s in found.after],
    )  # fmt: skip
