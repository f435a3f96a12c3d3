"""Rule `replayed_batches`: does the run read its own earlier batches again? Told from the losses alone."""

from __future__ import annotations

from service.detect import batches
from service.detect.findings import Findings
from service.detect.judgement import Cause, Evidence, Judgement

RULE = "replayed_batches"
MIN_POINTS = 64


def judge(findings: Findings) -> Judgement:
    """`yes` while batches come that came before, with the step they come from; `no`; `cannot tell` without losses of
    single steps. Declared further passes in the same order are no replay."""
    found = findings.replays
    if found is None or found.points < MIN_POINTS:
        points = 0 if found is None else found.points
        summary = f"Cannot tell: {points} of {MIN_POINTS} train losses on an even grid of steps."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="correlation", n=points)
    if found.open is not None:
        return _replaying(findings, found, found.open)
    ended = [r for r in found.replays if not r.legal]
    summary = "No batches come back in the losses."
    if ended:
        last = ended[-1]
        summary = (
            f"No batches come back now; steps {last.start:,} to {(last.end or last.start) - 1:,} repeated those from "
            f"step {last.source:,} on."
        )
    elif found.replays:
        summary = "Batches come back only as declared: a further pass in the same order."
    return Judgement(RULE, "no", findings.at_step, summary, unit="correlation", limit=batches.LEAST,
                     limit_source=_limit_source(), n=found.points, evidence=_evidence(found))  # fmt: skip


def _replaying(findings: Findings, found: batches.ReplayFinding, replay: batches.Replay) -> Judgement:
    since = (replay.start, replay.start)
    tokens = (findings.tokens_at(replay.start), findings.tokens_at(replay.start))
    with_restart = " (a restart)" if replay.restart is not None else ""
    summary = (
        f"Since step {replay.start:,}{with_restart} the run reads its own batches of step {replay.source:,} on again, "
        f"{replay.lag:,} steps later: {replay.metric} correlates by {replay.match.r:.3f} over {replay.match.n} points."
    )
    return Judgement(
        RULE, "yes", findings.at_step, summary, since, tokens, replay.match.r, None, "correlation", replay.match.limit,
        _limit_source(), replay.match.n, _evidence(found), [_cause(replay)], _checks(replay),
    )  # fmt: skip


def _cause(replay: batches.Replay) -> Cause:
    where = f"batches of step {replay.source:,} on came again from step {replay.start:,} on (lag {replay.lag:,} steps)"
    if replay.restart is not None:
        return Cause("replay since a restart", "shown", f"{where}, when the trainer started at step {replay.restart:,}")
    return Cause("the loader began again without a restart", "shown", f"{where}; no trainer start is near")


def _checks(replay: batches.Replay) -> list[str]:
    made = [f"Compare the rows read at step {replay.start:,} with those of step {replay.source:,}."]
    if replay.restart is not None:
        made.append("Compare the loader's position after the restart with updates made x rows per step and host.")
        made.append(f"Restart from a checkpoint at or before step {replay.restart:,} with the data position corrected.")
    else:
        made.append("Count the rows the loader can reach: a source that was sharded twice ends early and begins again.")
    return made


def _evidence(found: batches.ReplayFinding) -> list[Evidence]:
    made = [
        Evidence("restarts looked at", found.restarts, "starts", "with 16 points or more after each"),
        Evidence("spacing of the train loss", found.stride, "steps", "a replay shows if its lag is a multiple of this"),
        Evidence("signals", ", ".join(found.metrics), "", "metrics in which a batch leaves its signature"),
    ]
    for replay in found.replays[-4:]:
        match = replay.match
        until = "now" if replay.end is None else f"step {replay.end - 1:,}"
        kind = "declared pass" if replay.legal else "replay"
        why = (
            f"steps {replay.start:,} to {until} repeat those from {replay.source:,} on; correlation {match.r:.3f} over "
            f"{match.n} points, limit {match.limit:.2f} among {match.looks:,} lags, best other lag "
            f"{match.runner_up:.2f}, this lag just before {replay.before:.2f}; certain at step {replay.known_at:,}"
        )
        made.append(Evidence(kind, replay.lag, "steps", why))
    return made


def _limit_source() -> str:
    return "the best of all lags of unrelated batches (Fisher's z), at least 0.8"
