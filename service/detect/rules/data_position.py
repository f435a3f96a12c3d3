"""Rule `data_position`: after a restart, do the data go on where the weights stand, or behind or ahead of them?"""

from __future__ import annotations

from service.detect.findings import Findings
from service.detect.judgement import Cause, Evidence, Judgement
from service.detect.position import Position, Reading

RULE = "data_position"


def judge(findings: Findings) -> Judgement:
    """`yes` while rows or batches from before the newest restart come again, or stand at another place of the
    reference's order; `no` without a restart, or where the order is the reference's step by step; else `cannot tell`:
    what is ahead shows against an order alone."""
    found = findings.position
    if found is None:
        return Judgement(RULE, "no", findings.at_step, "The trainer was started once: no position could be lost.",
                         unit="steps")  # fmt: skip
    evidence = [
        Evidence(f"position by {r.source}", -r.behind, "steps", f"negative: behind the weights; {r.because}")
        for r in found.readings
    ]
    if found.off:
        return _off(findings, found, evidence)
    where = f"the restart at step {found.restart:,}"
    if found.right:
        summary = f"After {where} the data go on where the weights stand: {found.right[0].because}."
        return Judgement(RULE, "no", findings.at_step, summary, value=0.0, unit="steps", limit=0.0,
                         limit_source="the next batch follows the last one", evidence=evidence)  # fmt: skip
    ended = [r for r in found.readings if r.behind != 0]
    if ended:
        summary = f"After {where} the data were {_off_by(ended[0].behind)}; what had been read no longer comes."
        return Judgement(RULE, "no", findings.at_step, summary, value=0.0, unit="steps", limit=0.0, evidence=evidence)
    if found.not_behind:
        summary = (
            f"Cannot tell: after {where} the data are not behind the weights ({found.not_behind}); whether they are "
            "ahead shows only beside a reference that is read in the same order."
        )
    else:
        summary = f"Cannot tell: nothing shows yet where the data stand after {where}."
    return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="steps", evidence=evidence)


def _off(findings: Findings, found: Position, evidence: list[Evidence]) -> Judgement:
    values = list(dict.fromkeys(r.behind for r in found.off))
    told = " or ".join(_off_by(k) for k in values)
    by = "; ".join(f"{r.source}: {r.because}" for r in found.off)
    since = (found.restart + 1, found.restart + 1)
    at = (findings.tokens_at(since[0]), findings.tokens_at(since[1]))
    agree = len(values) == 1
    causes = [Cause(_name(r, found.restart), "shown" if agree else "possible", r.because) for r in found.off]
    causes = list({c.name: c for c in causes}.values())
    return Judgement(
        RULE, "yes", findings.at_step, f"After the restart at step {found.restart:,} the data are {told} ({by}).",
        since, at, float(-values[0]), None, "steps", 0.0, "the next batch follows the last one", len(found.off),
        evidence, causes,
        ["Compare the loader's position after the restart with updates made x rows per step over all hosts.",
         "See which checkpoint the weights came from, and which one the loader's state.",
         f"Restart from a checkpoint at or before step {found.restart:,} with the position set by hand."],
    )  # fmt: skip


def _off_by(behind: int) -> str:
    steps = abs(behind)
    side = "behind" if behind > 0 else "ahead of"
    return f"{steps:,} step{'s' if steps != 1 else ''} {side} the weights"


def _name(reading: Reading, restart: int) -> str:
    if reading.behind > 0:
        return f"replay since the restart at step {restart:,}"
    return f"data skipped at the restart at step {restart:,}"
