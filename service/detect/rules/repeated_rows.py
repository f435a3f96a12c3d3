"""Rule `repeated_rows`: does the trainer read rows again, beyond the equal rows a corpus holds anyway?"""

from __future__ import annotations

from service.detect import causes
from service.detect.findings import Findings
from service.detect.judgement import Cause, Evidence, Judgement
from service.detect.rows import RowFinding

RULE = "repeated_rows"
MIN_READINGS = 30


def judge(findings: Findings) -> Judgement:
    """`yes` while the repeat share is above the natural one (sequential likelihood ratio); `no`; `cannot tell` without
    fingerprints or with fewer than 30 sampled readings."""
    found, text = findings.rows, findings.text
    if (found is None or found.episode is None) and text is not None and text.episode is not None and text.onset:
        return _repacked(findings, text, text.onset)
    if found is None:
        return Judgement(
            RULE, "cannot tell", findings.at_step, "Cannot tell: no row fingerprints were sent.", unit="share",
            evidence=findings.evidence(),
        )  # fmt: skip
    if found.episode is not None and found.onset is not None:
        return _repeating(findings, found, found.onset)
    if found.sampled < MIN_READINGS:
        summary = f"Cannot tell yet: {found.sampled} of {MIN_READINGS} sampled row readings."
        return _answer(findings, found, summary, enough=False)
    legal = f" ({found.legal:,} readings belong to planned further passes)" if found.legal else ""
    share = f"{found.repeats:,} of {found.sampled:,} sampled readings"
    windows = f"; of text, {text.repeats:,} of {text.sampled:,} windows" if text is not None and text.sampled else ""
    if windows and text is not None:
        windows += f", {text.natural:.2g} of them natural ({text.natural_source})"
    summary = f"Rows are not repeated beyond the natural share: {share}{windows}{legal}."
    return _answer(findings, found, summary, enough=True)


def _repeating(findings: Findings, found: RowFinding, onset: tuple[int, int]) -> Judgement:
    ranked = causes.of_repeated_rows(findings)
    assert found.pattern is not None
    likely = f"; likely cause: {ranked[0].name}" if ranked else ""
    summary = (
        f"{found.share:.1%} of the rows read since step {onset[1]:,} had been read before "
        f"({found.distinct_rows:,} distinct of {found.rows_read:,} read){likely}."
    )
    return Judgement(
        RULE, "yes", findings.at_step, summary, onset,
        (findings.tokens_at(onset[0]), findings.tokens_at(onset[1])), found.share, found.interval, "share",
        found.natural, found.natural_source, found.pattern.readings, findings.evidence(), ranked,
        causes.next_checks(findings),
    )  # fmt: skip


def _repacked(findings: Findings, text: RowFinding, onset: tuple[int, int]) -> Judgement:
    """Rows do not repeat, the text in them does."""
    assert text.pattern is not None
    summary = (
        f"{text.share:.1%} of the text read since step {onset[1]:,} had been read before, in other rows: windows of 32 "
        f"tokens repeat where whole rows do not, so it was packed anew."
    )
    pattern = text.pattern
    because = (
        f"{pattern.repeats:,} of {pattern.readings:,} windows since then are repeats; {pattern.lag_share:.0%} of them "
        f"lie exactly {pattern.lag:,} steps behind"
    )
    restarts = [s.start_step for s in findings.view.segments if 0 < s.start_step <= onset[1]]
    packed = Cause("documents are read again and packed into other rows", "shown", because)
    ranked = [packed]
    if restarts:
        where = f"the newest restart before it is at step {restarts[-1]:,}"
        ranked.append(Cause("the packer's position was not restored", "possible", where))
    else:
        ranked.append(Cause("a further pass over the documents, not declared", "possible", "no restart is before it"))
    extra = Evidence(
        "share of repeated text", text.share, "share",
        f"of the windows since the onset, against {text.natural:.2g} that is natural ({text.natural_source}); "
        f"{text.sampled:,} windows in all",
    )  # fmt: skip
    return Judgement(
        RULE, "yes", findings.at_step, summary, onset,
        (findings.tokens_at(onset[0]), findings.tokens_at(onset[1])), text.share, text.interval, "share",
        text.natural, text.natural_source, pattern.readings, [*findings.evidence(), extra], ranked,
        [
            "Restore the packer together with the data iterator: its position is in documents, not in rows.",
            "Where documents are meant to be read again, declare it at start (data={'rows': …, 'epochs': …}).",
            "Stop before more is memorized; resume from the last checkpoint before the onset.",
        ],
    )  # fmt: skip


def _answer(findings: Findings, found: RowFinding, summary: str, *, enough: bool) -> Judgement:
    return Judgement(
        RULE, "no" if enough else "cannot tell", findings.at_step, summary, value=found.share, interval=found.interval,
        unit="share", limit=found.natural, limit_source=found.natural_source, n=found.sampled,
        evidence=findings.evidence(),
    )  # fmt: skip
