"""Rule `data_order`: does the run read the reference's batches, step by step? Told from the fingerprints of rows where
both have them, else from the losses."""

from __future__ import annotations

from service.detect import order
from service.detect.findings import Findings
from service.detect.judgement import Cause, Evidence, Judgement, State
from service.detect.rules import expected_rows

RULE = "data_order"
ORDER = "order"  # name of the evidence whose value is "same", "different" or "departs"
LIMIT_SOURCE = "equal batches correlate by 0.96 and more, unrelated ones by 0.41 over 64 steps (real reruns)"


def judge(findings: Findings) -> Judgement:
    """`yes` where the run declared the reference's order and reads another; `no` otherwise, with the order found as
    evidence (another order is not by itself a fault); `cannot tell` without rows or single steps of the reference."""
    view = findings.view
    found, read = findings.order, findings.same_rows
    if read is not None and expected_rows.tells(read):
        return expected_rows.judge(RULE, ORDER, findings, read, _evidence(found)[1:])
    if found.answer == "cannot tell":
        return Judgement(RULE, "cannot tell", findings.at_step, f"Cannot tell: {found.why}.", n=found.pairs,
                         unit="correlation", evidence=_evidence(found))  # fmt: skip
    newest = found.stretches[-1]
    fault = found.answer != "same" and view.same_order_declared
    state: State = "yes" if fault else "no"
    since = found.since if found.since is not None else (newest.first, newest.first)
    tokens = (findings.tokens_at(since[0]), findings.tokens_at(since[1]))
    return Judgement(
        RULE, state, findings.at_step, _summary(findings, found), since if fault else None, tokens if fault else None,
        newest.r, None, "correlation", order.UNRELATED, LIMIT_SOURCE, newest.n, _evidence(found),
        _causes(findings, found) if fault else [], _checks(found) if fault else [],
    )  # fmt: skip


def _summary(findings: Findings, found: order.OrderFinding) -> str:
    newest = found.stretches[-1]
    where = findings.view.reference_name or "the reference"
    shown = f"residuals correlate by {newest.r:.3f} over {newest.n:,} steps"
    shift = f"; it reads what {where} read {_away(found.shift)}" if found.shift else ""
    if found.answer == "same":
        return f"The run reads the batches of {where} step by step since step {newest.first:,}: {shown}."
    if found.answer == "departs" and found.since is not None:
        low, high = found.since
        return f"The run leaves the data order of {where} at step {low:,} to {high:,}: {shown}{shift}."
    return f"The run reads another data order than {where}: {shown}{shift}."


def _away(shift: int | None) -> str:
    steps = abs(shift or 0)
    return f"{steps:,} step{'s' if steps != 1 else ''} {'later' if (shift or 0) > 0 else 'earlier'}"


def _evidence(found: order.OrderFinding) -> list[Evidence]:
    answer = found.answer
    made = [Evidence(ORDER, answer, "", "by the residuals of single steps; needs no look at the data")]
    for metric, r, n in found.channels:
        made.append(Evidence(f"correlation of {metric}", round(r, 4), "", f"over the newest {n:,} pairs of steps"))
    for stretch in found.stretches[-4:]:
        says = "the same batches" if stretch.same else "other batches"
        why = f"{says}: correlation {stretch.r:.3f} over {stretch.n:,} pairs"
        made.append(Evidence("stretch", f"steps {stretch.first:,} to {stretch.last:,}", "", why))
    if found.shift is not None and found.match is not None:
        match = found.match
        why = (
            f"correlation {match.r:.3f} over {match.n} steps (limit {match.limit:.2f} among {match.looks:,} places; "
            f"the best other place {match.runner_up:.2f})"
        )
        made.append(Evidence("shift", found.shift, "steps", why))
    return made


def _causes(findings: Findings, found: order.OrderFinding) -> list[Cause]:
    if found.shift:
        because = f"its batches are those of the reference {_away(found.shift)}"
        name = "data ahead of the weights" if found.shift > 0 else "data behind the weights"
        return [Cause(name, "shown", because)]
    restart = _restart(findings, found)
    made: list[Cause] = []
    if restart is not None:
        made.append(
            Cause("position of the data lost at a restart", "likely", f"the trainer started at step {restart:,}")
        )
    because = "no stretch of the reference's order fits the newest batches"
    made.append(Cause("another seed, mix or sharding of the data", "possible", because))
    return made


def _restart(findings: Findings, found: order.OrderFinding) -> int | None:
    if found.since is None:
        return None
    low, high = found.since
    return next(
        (s.start_step for s in findings.view.segments if s.start_step and low - 1 <= s.start_step <= high), None
    )


def _checks(found: order.OrderFinding) -> list[str]:
    made = ["Compare seed, shard count and batch size of the data loader with the reference's recipe."]
    if found.answer == "departs":
        made.append("Compare the loader's position after the restart with updates made x rows per step.")
    return made
