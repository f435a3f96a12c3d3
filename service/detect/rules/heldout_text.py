"""Rule `heldout_text`: does the trainer train on text of a held-out set?"""

from __future__ import annotations

from service.detect.findings import Findings
from service.detect.heldout_text import WHOLE, SetFinding
from service.detect.judgement import Cause, Evidence, Judgement

RULE = "heldout_text"
MIN_ROWS = 100  # sampled
WHOLE_SOURCE = "a text read once gains some 0.2 nats (assumed); the noise of a held-out loss is 0.0017"


def judge(findings: Findings) -> Judgement:
    """`yes` while passages of a held-out set come in training rows above the natural share (sequential likelihood
    ratio), or once whole documents that make 1 % of a set were read; `no`; `cannot tell` where nobody looks for them,
    or fewer than 100 sampled rows were looked through."""
    found = findings.heldout_text
    if not found:
        summary = "Cannot tell: no held-out windows are looked for in the training rows."
        return Judgement(RULE, "cannot tell", findings.at_step, summary, unit="share")
    met = sorted((s for s in found if s.onset is not None), key=lambda s: -s.share)
    if met:
        return _met(findings, met, found)
    whole = sorted((s for s in found if s.whole_since is not None), key=lambda s: -s.whole)
    if whole:
        return _whole(findings, whole, found)
    few = [s for s in found if s.rows // s.sample < MIN_ROWS]
    evidence = [_evidence(s) for s in found]
    most = max(found, key=lambda s: s.share)
    names = ", ".join(s.name for s in found)
    if few:
        summary = f"Cannot tell yet: {few[0].rows // few[0].sample} of {MIN_ROWS} sampled rows for {few[0].name}."
    else:
        pieces = [
            f"{s.pieces:,} rows hold a piece of {s.name}, {s.hits:,} of them a passage"
            + (f", {s.documents:,} a whole document ({s.whole:.2%} of the set)" if s.documents else "")
            for s in found
            if s.pieces
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


def _whole(findings: Findings, met: list[SetFinding], found: list[SetFinding]) -> Judgement:
    worst = met[0]
    assert worst.whole_since is not None
    since = worst.whole_since
    rows = f"{worst.documents:,} training row{'s' if worst.documents != 1 else ''}"
    summary = (
        f"Whole documents of the held-out set {worst.name} are trained on: {rows} hold {worst.whole:.1%} of it (1 "
        f"window in {worst.rate:,} looked for), enough to move its loss."
    )
    return Judgement(
        RULE, "yes", findings.at_step, summary, since, (findings.tokens_at(since[0]), findings.tokens_at(since[1])),
        worst.whole, None, "share of the set", WHOLE, WHOLE_SOURCE, worst.documents, [_evidence(s) for s in found],
        [Cause("single documents of the set are in the training data", "shown",
               f"{rows}, each with some 1,500 tokens of the set and more")],
        ["Search the training data for these documents and see from which source they come.",
         "Leave them out of the set, or judge by another held-out set."],
    )  # fmt: skip


def _evidence(found: SetFinding) -> Evidence:
    low, high = found.interval
    return Evidence(
        f"held-out text of {found.name}", f"{found.share:.2g} ({low:.2g} … {high:.2g})", "share",
        f"rows with a passage of the set: {found.hits:,} of {found.rows:,}, {found.windows:,} different ones; with a "
        f"piece: {found.pieces:,}; with a whole document: {found.documents:,}, {found.whole:.2%} of the set; 1 window "
        f"in {found.rate:,} looked for; natural: {found.natural:.1g}",
    )  # fmt: skip
