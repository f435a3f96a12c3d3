"""Rule `heldout_text`: does the trainer train on text of a held-out set?"""

from __future__ import annotations

from service.detect.findings import Findings
from service.detect.heldout_text import SetFinding
from service.detect.judgement import Cause, Evidence, Judgement

RULE = "heldout_text"
MIN_ROWS = 100  # sampled


def judge(findings: Findings) -> Judgement:
    """`yes` while windows of a held-out set come in training rows above the natural share (sequential likelihood
    ratio); `no`; `cannot tell` where nobody looks for them, or fewer than 100 sampled rows were looked through."""
    found = findings.heldout_text
    if not found:
        summary = "Cannot tell: no held-out windows are looked for in the training rows."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="share")
    met = sorted((s for s in found if s.onset is not None), key=lambda s: -s.share)
    if met:
        return _met(findings, met, found)
    few = [s for s in found if s.rows // s.sample < MIN_ROWS]
    evidence = [_evidence(s) for s in found]
    most = max(found, key=lambda s: s.share)
    names = ", ".join(s.name for s in found)
    if few:
        summary = f"Cannot tell yet: {few[0].rows // few[0].sample} of {MIN_ROWS} sampled rows for {few[0].name}."
    else:
        pieces = [
            f"{s.pieces:,} rows hold a piece of {s.name}, {s.hits:,} of them a passage" for s in found if s.pieces
        ]
        summary = f"Training rows hold no text of {names}, as far as 1 window in {found[0].rate} can tell."
        if pieces:
            summary = f"Training rows hold passages of {names} within the natural share: {'; '.join(pieces)}."
    return Judgement(
        RULE, "cannot tell" if few else "no", findings.at_step, summary, value=most.share, interval=most.interval,
        unit="share", limit=most.natural, limit_source=most.natural_source, n=most.rows // most.sample,
        evidence=evidence,
    )  # fmt: skip


def _met(findings: Findings, met: list[SetFinding], found: list[SetFinding]) -> Judgement:
    worst = met[0]
    assert worst.onset is not None
    since = (min(s.onset[0] for s in met if s.onset), min(s.onset[1] for s in met if s.onset))
    names = " and ".join(s.name for s in met)
    summary = (
        f"{worst.share:.3%} of the training rows since step {since[1]:,} hold passages of the held-out set "
        f"{worst.name} ({worst.windows:,} different windows met, 1 in {worst.rate:,} looked for): held-out evidence of "
        f"{names} is not independent of training."
    )
    evidence = [_evidence(s) for s in found]
    evidence += [
        Evidence(f"heldout/{s.name}/ce_loss", "not independent", "",
                 "the set's text is in the training rows: that this loss falls says nothing about the model's gain")
        for s in met
    ]  # fmt: skip
    return Judgement(
        RULE, "yes", findings.at_step, summary, since, (findings.tokens_at(since[0]), findings.tokens_at(since[1])),
        worst.share, worst.interval, "share", worst.natural, worst.natural_source, worst.rows // worst.sample, evidence,
        [Cause("the set's documents are in the training data", "likely",
               f"{worst.windows:,} different windows, {worst.share / worst.natural:,.0f} times the natural share"),
         Cause("evaluation rows are drawn from the training index", "possible",
               "then the set changes with the loader; compare its id before and after a restart")],
        ["Leave the set out of the verdict and judge by another held-out set.",
         "Search the training data for the met windows and see from which source they come.",
         "Filter the source by n-grams of the held-out sets before training goes on."],
    )  # fmt: skip


def _evidence(found: SetFinding) -> Evidence:
    low, high = found.interval
    return Evidence(
        f"held-out text of {found.name}", f"{found.share:.2g} ({low:.2g} … {high:.2g})", "share",
        f"rows with a passage of the set: {found.hits:,} of {found.rows:,}, {found.windows:,} different ones; with a "
        f"piece: {found.pieces:,}; 1 window in {found.rate:,} looked for; natural: {found.natural:.1g}",
    )  # fmt: skip
