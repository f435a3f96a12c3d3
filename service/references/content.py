"""The digest of what a bundle says, however its files spell it: CSV or Parquet, a folder or an archive."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

import numpy as np

from service.references.estimate import live

if TYPE_CHECKING:
    from service.references.bundle import StageSeries
    from service.references.data_order import ExpectedRows
    from service.references.description import Description


def content_digest(description: Description, series: Iterable[StageSeries], rows: Iterable[ExpectedRows] = ()) -> str:
    """SHA-256 in hex over the description, every launch (those that logged nothing too), every point
    and every expected row.

    So an installed reference that is written out and read again has the digest it had.
    """
    total = hashlib.sha256()
    content = description.model_dump(mode="json", exclude_none=True)
    for stage in content["stages"]:
        stage["series"] = "series" in stage  # where a file lies says nothing
    if not content["data_order"]:
        del content["data_order"]  # older bundles keep the digest they had
    _add(total, json.dumps(content, sort_keys=True, separators=(",", ":")).encode())
    for one in sorted(series, key=lambda one: (one.stage, one.sibling)):
        _add(total, json.dumps([one.stage, one.sibling]).encode())
        for launch in one.launches:
            _add(total, json.dumps([launch.segment, launch.launched, launch.note]).encode())
            curves = one.curves[launch.segment]
            for metric in sorted(curves):
                steps, values = live([(curves[metric].steps, curves[metric].values)])
                _add(total, metric.encode())
                _add(total, steps.astype("<i8").tobytes())
                _add(total, np.where(np.isnan(values), np.nan, values).astype("<f8").tobytes())
    for expected in sorted(rows, key=lambda one: one.stage):
        _add(total, expected.to_bytes())
    return total.hexdigest()


def _add(total: Any, part: bytes) -> None:
    total.update(len(part).to_bytes(8, "big"))
    total.update(part)
