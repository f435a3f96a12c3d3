"""Following a run at W&B, by asking for the steps after the last one."""

from __future__ import annotations

from service.importers.follow_source import Cursor, Fed
from service.importers.rows import Row
from service.importers.wandb_api import PAGE_STEPS, WandbApi


class WandbSource:
    """One run. W&B gives a row once the trainer has gone on to the next step."""

    wait = 2.0
    format = "wandb"

    def __init__(self, api: WandbApi, run: str) -> None:
        self._api = api
        self._run = run
        self.name = f"{api.url}/{api.entity}/{api.project}/{run}"

    def read(self, cursor: Cursor | None) -> Fed | None:
        """The rows of the next thousand steps.

        Raises:
            WandbError: there is no such run, or W&B does not answer.
        """
        first: int = cursor["next"] if cursor else 0
        rows = self._api.history(self._run, first, first + PAGE_STEPS).rows
        if rows:
            flat = [Row(row.step, name, value, row.time) for row in rows for name, value in row.values.items()]
            return Fed(flat, {"next": rows[-1].step + 1}, more=True)
        last = self._api.run(self._run).last_step
        if last is None or last == first - 1:
            return None
        if last < first - 1:  # the run was rewound at W&B: from where is not told
            return Fed([], {"next": 0}, fresh=True, more=True)
        if last >= first + PAGE_STEPS:  # a gap in the steps
            return Fed([], {"next": first + PAGE_STEPS}, more=True)
        return None
