"""Why the train loss left the reference's: every cause that the evidence speaks for or against, most likely first.

Two causes that this run's evidence cannot tell apart are both named as possible, and neither is chosen.
"""

from __future__ import annotations

from typing import Literal

from . import causes
from .findings import Findings
from .judgement import Cause, Judgement, Weight
from .rules import definition, definition_changed, heldout_text, schedule_mismatch

Held = Literal["alone", "together", "unknown"]  # whether held-out moved as the train loss did

REPEATED = "repeated rows (double shard, replay)"
OTHER_ORDER = "correlated batches: data order or mix differs from the reference"
RATE = "another learning rate"
LOSS = "another loss definition (masked tokens in the mean, z-loss)"
EASIER = "easier data (another mix, filter or packing)"
HELDOUT_TEXT = "held-out text among the training rows"
EXPLAINS = 0.5  # of the gap, for a schedule to be its likely cause
PART = 0.25  # of it, where what is left is no more than healthy runs show


def of_drift(findings: Findings, side: Literal["below", "above"], held: Held) -> list[Cause]:
    """Causes of an open drift of the train loss to one side of the reference."""
    repeated = causes.of_repeated_rows(findings) if side == "below" else []
    shown = next((c for c in repeated if c.weight == "shown"), None)
    if shown is None and side == "below":
        shown = _replay(findings)
    found = [*repeated]
    if shown is not None and shown.name not in {c.name for c in repeated}:
        found.insert(0, shown)
    others = [
        _order(findings, side, held, explained=shown is not None),
        _rate(findings, side, held),
        _loss(findings, held, explained=shown is not None),
        _easier(findings, side, held, explained=shown is not None),
        _heldout_text(findings, held),
        _rows(findings, side, repeated, explained=shown is not None),
    ]
    if held == "together":  # what moves both losses comes first
        others = [*others[1:], others[0]]
    found += [c for c in others if c is not None]
    return sorted(found, key=lambda c: causes.ORDER.index(c.weight))


def next_checks(findings: Findings) -> list[str]:
    """What to do next about a train loss that sank alone, the most telling first."""
    return causes.next_checks(findings)


def _replay(findings: Findings) -> Cause | None:
    """A replay of the run's own batches that shows in the losses."""
    found = findings.replays
    replay = found.open if found is not None else None
    if replay is None:
        return None
    because = (
        f"{replay.metric} repeats that of {replay.lag:,} steps before: correlation {replay.match.r:.3f} over "
        f"{replay.match.n} points"
    )
    if replay.restart is not None:
        return Cause(f"replay since the restart at step {replay.restart:,}", "shown", because)
    return Cause("the loader reads the same rows in the same order again", "shown", because)


def _order(findings: Findings, side: str, held: Held, *, explained: bool) -> Cause:
    """Other batches than the reference's. They shift the train loss to either side, and held-out not."""
    found = findings.order
    if found.answer == "same":
        newest = found.stretches[-1]
        shown = f"residuals correlate by {newest.r:.3f} over {newest.n:,} steps"
        return Cause(OTHER_ORDER, "ruled out", f"it reads the reference's batches step by step: {shown}")
    if explained:
        weight: Weight = "possible" if found.answer == "departs" else "ruled out"
        because = "rows or batches do repeat, and that alone makes the train loss sink and held-out not"
        return Cause(OTHER_ORDER, weight, because)
    if held == "together":
        return Cause(OTHER_ORDER, "possible", "held-out moved as well, which another order alone does not make it do")
    said = {"departs": "it left the reference's order", "different": "it reads another order than the reference"}.get(
        found.answer, f"the order cannot be told from the losses: {found.why}"
    )
    rows = findings.rows
    if rows is None:
        apart = "" if side == "above" else "; it cannot be told from repeated rows without row fingerprints"
        return Cause(OTHER_ORDER, "possible", f"{said}{apart}")
    if rows.episode is not None:
        return Cause(OTHER_ORDER, "possible", f"{said}; rows repeat as well")
    alone = "train moves alone and no row repeats" if held == "alone" else "no row repeats"
    return Cause(OTHER_ORDER, "likely" if held == "alone" else "possible", f"{alone}; {said}")


def _rate(findings: Findings, side: str, held: Held) -> Cause:
    said = findings.said(schedule_mismatch.judge)
    if said.state == "no":
        return Cause(RATE, "ruled out", said.summary)
    if said.state == "cannot tell":
        weight: Weight = "ruled out" if held == "alone" else "possible"
        moves = "it moves train and held-out together" if held == "alone" else "it was not checked"
        return Cause(RATE, weight, f"{moves}. {said.summary}")
    if held == "alone":
        return Cause(RATE, "possible", f"{said.summary} It moves train and held-out together, and held-out stayed")
    now, train = findings.gap_now, findings.train
    assert now is not None, "an open drift has blocks"
    assert train is not None
    return _weighed_rate(said, f"gap {side}", now[0], train.tolerance.value)


def of_higher_heldout(findings: Findings, gap: float, tolerance: float) -> Cause | None:
    """Another learning rate as the cause of a held-out loss that lies `gap` nats above the reference's; None where the
    rate is the reference's or cannot be compared. By the law used it moves both losses by the same."""
    said = findings.said(schedule_mismatch.judge)
    return _weighed_rate(said, "held-out gap", gap, tolerance) if said.state == "yes" else None


def _weighed_rate(said: Judgement, of: str, gap: float, tolerance: float) -> Cause:
    """Likely where the schedule makes half of the gap, or so much that healthy runs show as much as the rest."""
    made = next((e.value for e in said.evidence if e.name == schedule_mismatch.MADE), None)
    if not isinstance(made, float):
        return Cause(RATE, "likely", said.summary)
    share, rest = made / gap if gap else 0.0, abs(gap - made)
    if share >= EXPLAINS:
        return Cause(RATE, "likely", f"{said.summary} By the law used it explains {share:.0%} of the {of}")
    if share >= PART and rest <= tolerance:
        left = f"the other {rest:.3f} nats are within the tolerance"
        return Cause(RATE, "likely", f"{said.summary} By the law used it explains {share:.0%} of the {of}; {left}")
    return Cause(RATE, "possible", f"{said.summary} By the law used it explains only {max(share, 0.0):.0%} of the {of}")


def _loss(findings: Findings, held: Held, *, explained: bool) -> Cause:
    at_restart, declared = findings.said(definition_changed.judge), findings.said(definition.judge)
    if declared.state == "yes":
        return Cause(LOSS, "shown", declared.summary)
    if at_restart.state == "yes":
        return Cause(LOSS, "likely", at_restart.summary)
    if declared.state == "no":
        return Cause(LOSS, "ruled out", declared.summary)
    if held == "together":
        return Cause(LOSS, "ruled out", "held-out, which has a definition of its own, moved as well")
    if explained:
        return Cause(LOSS, "ruled out", "rows or batches do repeat, and that alone makes the train loss sink")
    return Cause(LOSS, "possible", f"it leaves held-out where it was, and comes as one step. {at_restart.summary}")


def _easier(findings: Findings, side: str, held: Held, *, explained: bool) -> Cause | None:
    if side == "above":
        return Cause("harder data (another mix, filter or packing)", "possible", "the train loss lies above")
    if findings.order.answer == "same":
        return Cause(EASIER, "ruled out", "it reads the reference's batches step by step")
    if explained:
        return None
    if held == "alone":
        return Cause(EASIER, "possible", "easier rows lower the train loss and hardly the held-out one; it looks like "
                     "another order from here")  # fmt: skip
    return Cause(EASIER, "possible", "both losses sink" if held == "together" else "held-out does not tell yet")


def _heldout_text(findings: Findings, held: Held) -> Cause | None:
    if held != "together":
        return None
    said = findings.said(heldout_text.judge)
    weight: Weight = "shown" if said.state == "yes" else "ruled out" if said.state == "no" else "possible"
    return Cause(HELDOUT_TEXT, weight, said.summary)


def _rows(findings: Findings, side: str, repeated: list[Cause], *, explained: bool) -> Cause | None:
    """Repeated rows where there are none, or where nobody looked."""
    if repeated or explained:
        return None
    found = findings.rows
    if side == "above":
        return Cause(REPEATED, "ruled out", "repeated rows lower the train loss")
    if found is None:
        because = "no row fingerprints were sent: repeated rows and another order look the same from the losses"
        return Cause(REPEATED, "possible", because)
    because = f"{found.repeats:,} of {found.sampled:,} sampled readings are repeats, within the natural share"
    return Cause(REPEATED, "ruled out", because)
