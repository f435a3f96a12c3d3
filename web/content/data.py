"""What a run has read: repeated rows over time, coverage, restarts, held-out text."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.fingerprints.answers import audit_of
from service.fingerprints.schemas import HeldoutAudit, RowAudit, RunAudit
from web import formatting
from web.content.panels import Group, Panel
from web.content.scene import Scene
from web.figures.repeats import Share, repeats_figure


def data(scene: Scene) -> Group:
    """The share of repeats over the run, of rows and of windows of text; what cannot be seen is said."""
    found = audit_of(scene.session, scene.run)
    shares = [
        (name, _shares(scene, part))
        for name, part in (("rows", found.rows), ("windows of text", found.windows))
        if part is not None and part.over_time
    ]
    if not shares:
        return Group(
            note="Nothing is known of the rows that were read: run.log_rows() or run.wrap() sends fingerprints."
        )
    figure = repeats_figure(shares, palette=scene.palette, axis=scene.axis, marks=scene.marks, x_range=scene.x_range)
    return Group([Panel("repeats", "Read before", " ".join(_words(found)), figure)])


def _shares(scene: Scene, part: RowAudit) -> list[Share]:
    return [
        Share(
            scene.ruler.of_step(float(one.first_step)),
            scene.ruler.of_step(float(one.last_step)),
            float(one.repeats) / one.readings if one.readings else float("nan"),
            int(one.readings),
        )
        for one in part.over_time
    ]


def _words(found: RunAudit) -> list[str]:
    words: list[str] = []
    if found.rows is not None:
        words.append(_rows(found.rows))
    if found.windows is not None:
        words.append(
            f"Of sampled windows of text {formatting.percent(found.windows.share)} had been read before"
            f"{_natural(found.windows)}."
        )
    words += [_heldout(one) for one in found.heldout]
    if found.same_rows is not None and found.same_rows.through is not None:
        same = found.same_rows
        words.append(f"The same rows as {same.name} through step {formatting.step(same.through or 0)}.")
    words += [f"Not seen: {text}" for text in found.unseen]
    return words


def _rows(rows: RowAudit) -> str:
    text = f"{formatting.percent(rows.share)} of {formatting.number(rows.rows_read)} rows had been read before"
    text += _natural(rows)
    if rows.planned:
        text += f", not counting {formatting.number(rows.planned)} sampled readings of declared epochs"
    text += "."
    if rows.coverage is not None and rows.declared_rows is not None:
        text += (
            f" {formatting.percent(rows.coverage)} of {formatting.number(rows.declared_rows)} declared rows were read."
        )
    returned = _returned([restart.returned for restart in rows.restarts])
    return text + (f" {returned}" if returned else "")


def _natural(part: RowAudit | HeldoutAudit) -> str:
    """What share is no alarm, and who says so: most often it is assumed, and so this stands beside every share."""
    return f" ({formatting.percent(part.natural, 2)} is natural, {part.natural_source})"


def _returned(returned: Sequence[int]) -> str:
    if not returned:
        return ""
    back = int(np.count_nonzero(returned))
    return f"Rows came back after {back} of {len(returned)} restarts."


def _heldout(one: HeldoutAudit) -> str:
    met = formatting.number(one.rows_with_text)
    return (
        f"Held-out {one.set}: {met} of {formatting.number(one.rows_read)} training rows hold text of it, "
        f"{formatting.percent(one.share, 2)} a passage{_natural(one)}."
    )
