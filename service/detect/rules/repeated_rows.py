"""Rule `repeated_rows`: does the trainer read rows again, beyond the equal rows a corpus holds anyway?"""

from __future__ import annotations

from service.detect import causes
from service.detect.findings import Findings
from service.detect.judgement import Judgement
from service.detect.rows import RowFinding

RULE = "repeated_rows"
MIN_READINGS = 30


def judge(findings: Findings) -> Judgement:
    """`yes` while the repeat share is above the natural one (sequential likelihood ratio); `no`; `cannot tell` without
    fingerprints or with fewer than 30 sampled readings."""
    found = findings.rows
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
    summary = f"Rows are not repeated beyond the natural share: {share}{legal}."
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


def _answer(findings: Findings, found: RowFinding, summary: str, *, enough: bool) -> Judgement:
    return Judgement(
        RULE, "no" if enough else "cannot tell", findings.at_step, summary, value=found.share, interval=found.interval,
        unit="share", limit=found.natural, limit_source=found.natural_source, n=found.sampled,
        evidence=findings.evidence(),
    )  # fmt: skip
