"""Rule `train_drift`: has the train loss left the reference's, below or above, beyond what healthy runs do?"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from service.compare.medians import median
from service.compare.pairs import SD_PER_LIMIT
from service.detect.beyond import beyond_reference
from service.detect.drift_causes import Held, of_drift
from service.detect.findings import TRAIN, Findings, current_gap, drift_now, left_own_offset
from service.detect.gaps import SD_PER_TOLERANCE, DriftEpisode, TrainGap, unit_of
from service.detect.heldout import Answer
from service.detect.judgement import Cause, Evidence, Judgement, State
from service.detect.pair_drift import Moved

RULE = "train_drift"
HELD_OUT_MOVED: Mapping[Answer, Held] = {"flat": "alone", "follows": "together", "cannot tell": "unknown"}
MIN_BLOCKS = 2
# "no" may be said only where the tolerance in force is at most this many tolerances: a drift of two, lasting through
# 2 % of the reference, is then found in at least three of four runs (simulated, docs/detection.md)
RESOLVABLE = 2.3
RESOLVABLE_MEASURED = 3.15  # the same where siblings gave the tolerance: their block means hold the step noise already


def judge(findings: Findings) -> Judgement:
    """`yes` with side, onset and gap; `no`; `cannot tell` without a reference, or where a drift would not show."""
    train = findings.train
    if train is None or len(train.blocks) < MIN_BLOCKS:
        return _too_little(findings, train)
    episode = train.open
    if episode is not None:
        return _drifting(findings, train, episode)
    if paired_moved(findings) is not None:
        return _moved_by_pairs(findings, train)
    now = current_gap(train)
    moved = findings.reference_moved
    if moved is not None:
        summary = (
            f"Cannot tell: the reference itself moved by {moved.reference:+.3f} nats at {moved.knot.what} and the run "
            f"by {moved.run:+.3f}; that alone makes the gap."
        )
        return _answer(findings, train, "cannot tell", now, summary)
    in_force = median(train.limit[-4:])
    resolvable = RESOLVABLE_MEASURED if train.tolerance.runs else RESOLVABLE
    if now is None or in_force > resolvable * train.tolerance.value:
        seen = findings.visible
        shows = in_force if seen is None else seen.half
        summary = f"Cannot tell yet: the smallest train gap that would show here is {shows:.3f} nats."
        return _answer(findings, train, "cannot tell", now, summary)
    value, tolerance = now[0], train.tolerance.value
    ended = beyond_reference(findings.view, TRAIN, findings.cache)
    if ended is not None:
        summary = f"Cannot tell of what came since: {ended}; until then the gap was {value:+.4f} nats."
        return _answer(findings, train, "cannot tell", now, summary)
    where = f"Train loss is {value:+.4f} nats from {_name(findings)}"
    summary = f"{where}, within the tolerance of {tolerance:.3f}."
    if abs(value) > tolerance:
        summary = f"{where}, at times beyond the tolerance of {tolerance:.3f} as a healthy run's may be."
    return _answer(findings, train, "no", now, summary)


def paired_moved(findings: Findings) -> Moved | None:
    """The lasting change that pairs of equal batches show, None where they show none, or one within the tolerance
    that people have set for this rule."""
    paired, setting = findings.paired, findings.view.settings.get(RULE)
    if paired is None or paired.open is None:
        return None
    allowed = setting.tolerance if setting is not None else None
    return None if allowed is not None and abs(paired.level[-1] - paired.open.base) <= allowed else paired.open


def sunk(findings: Findings) -> bool:
    """Whether the drift that is open is one below the reference, by block means or else by pairs."""
    train = findings.train
    if train is not None and train.open is not None:
        return train.open.side == "below"
    moved = paired_moved(findings)
    return moved is not None and moved.side == "below"


def onset_of(train: TrainGap, episode: DriftEpisode) -> tuple[tuple[int, int], tuple[float, float]]:
    """Onset interval in steps and tokens: from the last block without drift to the first one beyond the limit."""
    blocks, first = train.blocks, episode.first
    early = max(episode.before, 0)
    return (
        (int(blocks.first_step[early]), int(blocks.last_step[first])),
        (float(blocks.first_tokens[early]), float(blocks.last_tokens[first])),
    )


def _drifting(findings: Findings, train: TrainGap, episode: DriftEpisode) -> Judgement:
    now = drift_now(train)
    steps, tokens = onset_of(train, episode)
    side = "below" if episode.side == "below" else "above"
    against = "its own early offset from " if left_own_offset(train) else ""
    return _answer(
        findings, train, "yes", now,
        f"Train loss has drifted {side} {against}{_name(findings)} by {abs(now[0]):.3f} nats since step "
        f"{steps[0]:,} to {steps[1]:,}.",
        since=(steps, tokens),
    )  # fmt: skip


def _moved_by_pairs(findings: Findings, train: TrainGap) -> Judgement:
    paired, episode = findings.paired, paired_moved(findings)
    assert paired is not None
    assert episode is not None
    value, half = float(paired.level[-1]) - episode.base, 1.96 / SD_PER_LIMIT * float(paired.limit[episode.first])
    steps, tokens = paired.onset(episode)
    said = _answer(
        findings, train, "yes", (value, value - half, value + half),
        f"Train loss has moved {episode.side} {_name(findings)} by {abs(value):.4f} nats on equal batches since step "
        f"{steps[0]:,} to {steps[1]:,}.",
        since=(steps, tokens), side=episode.side,
    )  # fmt: skip
    source = f"{SD_PER_LIMIT} sd of a healthy change of the mean gap within 100 pairs, {_rests_on(paired.runs)}"
    return replace(said, limit=float(paired.limit[episode.first]), limit_source=source)


def _rests_on(siblings: int) -> str:
    return f"measured on {siblings} siblings in this phase" if siblings else "measured on the run's own past"


def _by_pairs(findings: Findings) -> list[Evidence]:
    """What pairs of equal batches show."""
    paired = findings.paired
    if paired is None:
        return []
    if not paired.judged:
        why = "the run reads the reference's batches; how far healthy changes scatter is not known yet"
        return [Evidence("gap by pairs", float(paired.level[-1]), "nats", why)]
    return [
        Evidence("gap by pairs", float(paired.level[-1]), "nats",
                 "the run reads the reference's batches: mean of the newest 100 pairs of steps"),
        Evidence("smallest change that shows by pairs", float(paired.limit[-1]), "nats",
                 f"within 100 to 200 steps; {_rests_on(paired.runs)}"),
    ]  # fmt: skip


def _answer(
    findings: Findings,
    train: TrainGap,
    state: State,
    now: tuple[float, float, float] | None,
    summary: str,
    *,
    since: tuple[tuple[int, int], tuple[float, float]] | None = None,
    side: str | None = None,
) -> Judgement:
    tolerance = train.tolerance
    evidence = [
        *findings.evidence(),
        Evidence("tolerance", tolerance.value, "nats", tolerance.source),
        Evidence("tolerance in force", median(train.limit[-4:]), "nats",
                 f"{SD_PER_TOLERANCE} sd of a healthy block mean here, the reference's own noise included"),
        Evidence("reference points per block", int(median(train.blocks.support[-4:])), "points",
                 "how many points of the reference carry its level in the newest blocks"),
    ]  # fmt: skip
    evidence += _visible(findings, train) + _by_pairs(findings)
    if train.offset is not None:
        why = "the run's own settled gap, measured between 3 % and 25 % of the reference"
        evidence.append(Evidence("own early offset", train.offset, "nats", why))
    steps, tokens = since if since is not None else (None, None)
    return Judgement(
        rule=RULE,
        state=state,
        at_step=findings.at_step,
        summary=summary,
        since_step=steps,
        since_tokens=tokens,
        value=now[0] if now else None,
        interval=(now[1], now[2]) if now else None,
        unit="nats",
        limit=tolerance.value,
        limit_source=tolerance.source,
        n=int(train.blocks.n.sum()),
        evidence=evidence,
        causes=_causes(findings, side) if state == "yes" else [],
        next_checks=_checks(findings) if state == "yes" else [],
    )


def _causes(findings: Findings, side: str | None) -> list[Cause]:
    """By what held-out says of the same steps; where it does not tell yet, nothing is ruled out by it."""
    train, held = findings.train, findings.heldout
    if side is None and train is not None and train.open is not None:
        side = train.open.side
    if side != "below":
        return of_drift(findings, "above", "unknown")
    return of_drift(findings, "below", HELD_OUT_MOVED[held.answer])


def _visible(findings: Findings, train: TrainGap) -> list[Evidence]:
    """What a thinned reference can show, where it is thinned."""
    blocks, reference = train.blocks, findings.view.reference[TRAIN]
    first = max(len(blocks) - 4, 0)
    inside = np.searchsorted(reference.tokens, (blocks.first_tokens[first], blocks.last_tokens[-1]))
    steps = int(blocks.last_step[-1] - blocks.first_step[first]) + 1
    seen = findings.visible if 2 * int(inside[1] - inside[0]) < steps else None
    if seen is None:
        return []
    return [
        Evidence("smallest visible gap", seen.half, "nats",
                 f"lasting from {seen.start:.0%} to {seen.end:.0%} of the reference (here), it is found in half of all "
                 f"runs; from {seen.sure:.3f} on in 95 %. The reference has {seen.points} points there"),
        Evidence("smallest visible gap along the reference", seen.along, "nats", "by tenth of its tokens, the same"),
    ]  # fmt: skip


def _too_little(findings: Findings, train: TrainGap | None) -> Judgement:
    if TRAIN not in findings.view.metrics:
        summary = "Cannot tell: the run has no train loss."
    elif not findings.view.reference.get(TRAIN):
        summary = "Cannot tell: there is no reference train loss to compare with."
    elif train is None and (unit := unit_of(findings.view, TRAIN, findings.cache)) is not None:
        name = _name(findings)
        summary = f"Cannot tell: the run's train loss seems to be {unit}; that of {name} is in nats per token."
    elif train is None:
        summary = "Cannot tell: no train point lies in the reference's token range."
    else:
        summary = f"Cannot tell yet: {len(train.blocks)} of {MIN_BLOCKS} complete blocks of train loss."
    return Judgement(RULE, "cannot tell", findings.at_step, summary, evidence=findings.evidence(), unit="nats")


def _checks(findings: Findings) -> list[str]:
    held = [] if findings.heldout.heldout is not None else [_of_heldout(findings)]
    return [
        *held,
        "Compare learning rate, batch size and loss definition (z-loss, masked tokens) with the reference's recipe.",
        "Look for a restart, a resize or a code change at the onset.",
    ]


def _of_heldout(findings: Findings) -> str:
    """What to do about held-out, where it does not say yet whether it moved too."""
    if findings.heldout_gap is None:
        return "Evaluate held-out loss at checkpoints before and after the onset: a real change shows there too."
    if findings.heldout.answer == "cannot tell" and findings.train is not None and findings.train.open is not None:
        return f"Evaluate held-out loss at more checkpoints since the onset: {findings.heldout.why}."
    return "Evaluate held-out loss at checkpoints on both sides of the onset: a real change shows there too."


def _name(findings: Findings) -> str:
    return findings.view.reference_name or "the reference"
