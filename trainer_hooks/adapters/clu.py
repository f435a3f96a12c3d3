"""`clu.metric_writers`: a writer to combine with others, for any loop of Flax or Scenic that writes through clu.

writer = metric_writers.MultiWriter([writer, PacenoteWriter(name="my-run", project="olmo3-7b", start_step=step)])
"""
# pyright: basic, reportMissingImports=false, reportAttributeAccessIssue=false, reportGeneralTypeIssues=false

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from clu import metric_writers

from trainer_hooks.adapters.attached import Attached


class PacenoteWriter(metric_writers.MetricWriter):
    """Takes scalars and hyper-parameters, leaves out the rest.

    `shift` is added to every step: 1 for a loop that counts its steps from 0 and writes before it counts on. `names` is
    the name map; `arguments` are those of `trainer_hooks.start`, with `name`.
    """

    def __init__(self, *, shift: int = 0, names: str = "clu", **arguments: Any) -> None:
        self.attached = Attached(names, arguments, shift)

    def write_scalars(self, step: int, scalars: Mapping[str, Any]) -> None:
        evaluation = all(name.startswith(("eval", "val")) for name in scalars)
        self.attached.log(step, scalars, evaluation)

    def write_hparams(self, hparams: Mapping[str, Any]) -> None:
        self.attached.call("event", 0, "config", dict(hparams))

    def close(self) -> None:
        self.attached.finish()

    def flush(self) -> None:
        """Nothing waits here: what was taken is on the disk within a second."""

    def _leave_out(self, *arguments: Any, **named: Any) -> None:
        """Only scalars can be compared with a published run."""

    write_summaries = write_images = write_videos = write_audios = write_texts = _leave_out
    write_histograms = write_pointcloud = _leave_out
