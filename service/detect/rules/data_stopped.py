"""Rule `data_stopped`: has the run gone silent? Judged by the service's clock, so that a dead trainer is noticed."""

from __future__ import annotations

from functools import partial

import numpy as np

from service.detect.facts import Arrivals
from service.detect.findings import Findings
from service.detect.inputs import Floats
from service.detect.judgement import Cause, Evidence, Judgement

RULE = "data_stopped"
MIN_PAUSES = 20  # between logged steps, before a pattern is one
USUAL = 20.0  # times the median pause
LONGEST = 3.0  # times the longest pause so far: an evaluation or a checkpoint that is due
FRESH = 10.0  # seconds; so long after data nothing has stopped, whatever the pattern is
LEAST = 120.0  # seconds; a hook that was refused waits up to 60 s before it tries again


def judge(findings: Findings) -> Judgement:
    """`yes` when nothing has come for longer than the run's own pattern of pauses allows; `no` while it comes, and of
    a run that has ended as it should; `cannot tell` of a run that has only begun, and where no clock is at hand."""
    heard = findings.view.arrivals
    if heard is None:
        summary = "Cannot tell: it is judged by the service's clock, while the run is live."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="s")
    if heard.finished:
        return Judgement(RULE, "no", findings.at_step, "The trainer has ended as it should.", unit="s")
    silent = heard.now - heard.last
    if silent <= FRESH:
        silent = float(round(max(silent, 0.0)))  # an answer that is the same need not be written again
        summary = f"Data come: the last ones {_long(silent)} ago."
        return Judgement(RULE, "no", findings.at_step, summary, value=silent, unit="s", limit=FRESH,
                         limit_source="so long after data nothing has stopped")  # fmt: skip
    pauses = pauses_of(heard)
    if len(pauses) < MIN_PAUSES:
        summary = f"Cannot tell yet: {len(pauses)} of {MIN_PAUSES} pauses between logged steps."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="s", n=len(pauses))
    return _judged(findings, heard, pauses)


def look_again(judgement: Judgement) -> float | None:
    """Seconds after which a run that stays silent is to be judged again; None where that would change nothing."""
    if judgement.state == "yes" or judgement.value is None or judgement.limit is None:
        return None
    left = judgement.limit - judgement.value
    return left if left > 0.0 else judgement.limit


def pauses_of(heard: Arrivals) -> Floats:
    """Seconds (m,) between logged steps that follow each other; the time a trainer was down counts as one of them."""
    times = heard.times[np.isfinite(heard.times)]
    pauses = np.diff(times)
    return pauses[pauses >= 0.0]


def _judged(findings: Findings, heard: Arrivals, pauses: Floats) -> Judgement:
    usual, longest = float(np.median(pauses)), float(np.quantile(pauses, 1.0 - 1.0 / len(pauses)))
    limit = max(LEAST, USUAL * usual, LONGEST * longest)
    source = (
        f"the largest of {USUAL:g} x the usual pause ({_long(usual)}), {LONGEST:g} x the longest of the newest "
        f"{len(pauses):,} but one ({_long(longest)}), and {_long(LEAST)}"
    )
    limit, source = findings.view.limit(RULE, limit, source)
    silent, unheard = heard.now - heard.last, heard.now - heard.heard_since
    evidence = [
        Evidence("silence", round(silent, 1), "s", "since the service received anything of this run, by its own clock"),
        Evidence("usual pause", round(usual, 3), "s", f"median between logged steps, over the newest {len(pauses):,}"),
        Evidence("long pause", round(longest, 3), "s", "the longest of them but one: evaluations, checkpoints"),
    ]
    step = findings.at_step
    answer = partial(
        Judgement, RULE, at_step=step, value=silent, unit="s", limit=limit, limit_source=source, n=len(pauses),
        evidence=evidence,
    )  # fmt: skip
    if silent <= limit:
        return answer(state="no", summary=f"Data come: the last ones {_long(silent)} ago.")
    if unheard <= limit:
        summary = f"Cannot tell yet: this service has been listening for {_long(max(unheard, 0.0))} only."
        return answer(state="cannot tell", summary=summary)
    tokens = findings.tokens_at(step)
    return answer(
        state="yes",
        summary=f"Nothing has come for {_long(silent)} since step {step:,}; a pause of {_long(limit)} would have been "
        "usual.",
        since_step=(step, step + 1), since_tokens=(tokens, tokens),
        causes=[
            Cause("the trainer has died, hangs, or waits for machines", "possible", "it said no goodbye"),
            Cause("the trainer cannot reach this service", "possible", "what it records waits in its spool meanwhile"),
        ],
        next_checks=[
            "See whether the trainer's job still runs, and what it logged last.",
            "From the trainer's machine, ask this service's /health; `pacenote sync` sends what a dead process left.",
        ],
    )  # fmt: skip


def _long(seconds: float) -> str:
    """A length of time in words."""
    if seconds < 120.0:
        return f"{seconds:,.3g} s"
    return f"{seconds / 60.0:,.0f} min" if seconds < 7200.0 else f"{seconds / 3600.0:,.1f} h"
