"""A report as Markdown tables, fit to be pasted into an issue. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

from service.reports import words
from service.reports.document import Cell, Incident, Judged, Report, Row, SegmentPart

_MARKUP = re.compile(r"([\\`*_{}\[\]<>#|~$&])")
_CALLS = re.compile(r"@(?=\w)|(?<=#)(?=\d)")  # what code hosts make a mention or a link of, even where it is escaped
APART = "\u2060"  # a word joiner: no width, and no part of a name


def to_markdown(report: Report) -> str:
    """The whole report but its curves."""
    parts = [
        *_head(report), *_table(report), *_segments(report), *_incidents(report), *_data(report), *_rules(report),
        *_reference(report), *_foot(report),
    ]  # fmt: skip
    return "\n".join(parts) + "\n"


def safe(text: object) -> str:
    """Text that Markdown shows as it is, on one line; no name, mention or tag in it means anything."""
    shown = words.short(text if isinstance(text, str) else str(text))
    return _CALLS.sub(lambda found: found.group() + APART, _MARKUP.sub(r"\\\1", shown))


def _head(r: Report) -> list[str]:
    verdict, progress = r.verdict, r.progress
    against = f"{safe(r.reference.title)}, version {safe(r.reference.version)}" if r.reference else "no reference"
    of = f" of {words.whole(progress.stage_steps)}" if progress.stage_steps else ""
    share = f", {words.percent(progress.stage_share)}" if progress.stage_share is not None else ""
    where = f"{words.tokens(progress.tokens)} tokens, step {words.whole(progress.step)}{of}{share}"
    judged = words.moment(verdict.decided_at)
    if verdict.at_step is not None:
        judged += f", up to step {words.whole(verdict.at_step)}"
    return [
        f"# {safe(r.run.name)}: {verdict.state or 'not judged'}", "",
        *([safe(verdict.because), ""] if verdict.because else []),
        *([f"**{safe(verdict.note)}**", ""] if verdict.note else []),
        f"- Project {safe(r.run.project)}, stage {safe(r.run.stage)}, compared with {against}",
        f"- Judged {judged}",
        f"- Progress: {where}{', finished' if progress.finished else ''}",
        f"- Last data {words.moment(progress.last_data_at)}",
        "",
    ]  # fmt: skip


def _table(r: Report) -> list[str]:
    lines = ["## Checkpoints", ""]
    if not r.table:
        return [*lines, "No loss and no accuracy that can be shown.", ""]
    head = ["Metric (tolerance)"]
    head += [f"step {words.whole(c.step)}, {words.tokens(c.tokens)} tokens ({safe(c.why)})" for c in r.checkpoints]
    rows = [[_metric(row), *(_cell(cell, row) for cell in row.cells)] for row in r.table]
    told = (
        "Run's value (run minus reference at equal tokens ± half width of the 95 % interval), and whether that "
        "interval lies within the tolerance. Declared deviations are not taken out."
    )
    sources = [
        f"- {safe(row.title)}: ±{words.number(row.tolerance)} {row.unit}, {_runs(row)}; {safe(row.tolerance_source)}"
        for row in r.table
        if row.tolerance is not None
    ]
    return [*lines, *_grid(head, rows), "", told, "", *(["Tolerances:", "", *sources, ""] if sources else [])]


def _metric(row: Row) -> str:
    limit = "not known" if row.tolerance is None else f"±{words.number(row.tolerance)}"
    mean = f", mean of {words.whole(row.gap_steps)} steps" if row.gap_steps else ""
    return f"{safe(row.title)}{mean} ({limit})"


def _cell(cell: Cell | None, row: Row) -> str:
    if cell is None:
        return "too few points" if row.gap_steps else "not measured"
    because = f": {cell.because}" if cell.because else ""
    return f"{words.number(cell.run)} ({words.deviation(cell, row)}) {words.stand(cell)}{because}"


def _runs(row: Row) -> str:
    return f"from {row.tolerance_runs} healthy runs" if row.tolerance_runs else "assumed"


def _segments(r: Report) -> list[str]:
    rows = [
        [
            words.whole(s.start_step), _live_to(s), s.kind, words.moment(s.started_at),
            safe(words.pairs(s.topology)), safe(words.pairs(s.versions)),
        ]
        for s in r.segments
    ]  # fmt: skip
    head = ["From step", "Live to", "Kind", "Started", "Hardware", "Versions"]
    return ["## Segments and hardware", "", *(_grid(head, rows) if rows else ["The trainer has not started."]), ""]


def _live_to(s: SegmentPart) -> str:
    if s.superseded:
        return "wholly superseded"
    return "its end" if s.live_to_step is None else words.whole(s.live_to_step)


def _incidents(r: Report) -> list[str]:
    lines = ["## Incidents", ""]
    none = "No alert was raised." if r.rules else "No alert was raised: nothing was judged."
    lines += [line for one in r.incidents for line in _incident(one)] or [none, ""]
    for d in r.deviations:
        budgets = ", ".join(f"{safe(metric)} {words.number(value, sign=True)}" for metric, value in d.budgets.items())
        ends = [f"step {words.whole(d.end_step)}"] if d.end_step is not None else []
        ends += [f"{words.tokens(d.end_tokens)} tokens"] if d.end_tokens is not None else []
        ends += [words.moment(d.end_at)] if d.end_at is not None else []
        span = f"from step {words.whole(d.from_step)} to {' or '.join(ends) or 'the end'}"
        lines.append(f"- Declared deviation ({d.item}): {safe(d.text)}; {budgets}; {span}; by {safe(d.by)}")
    return [*lines, "" if r.deviations else "Declared deviations: none.", ""]


def _incident(one: Incident) -> list[str]:
    resolved = f" {words.moment(one.resolved_at)}" if one.resolved_at else ""
    tokens = f" ({words.span(one.onset_tokens, of='tokens')} tokens)" if one.onset_tokens else ""
    return [
        f"### {safe(one.title)}", "",
        f"{one.severity.capitalize()}, {one.state}{resolved}. Raised {words.moment(one.opened_at)} at step "
        f"{words.whole(one.opened_step)}; began at step {words.span(one.onset_steps)}{tokens}.", "",
        *(f"- {safe(text)}" for text in one.summaries),
        *(f"- {cause.weight.capitalize()}: {safe(cause.name)}: {safe(cause.because)}" for cause in one.causes),
        *(f"- {words.moment(h.at)} {h.kind}" + (f" by {safe(h.by)}" if h.by else "")
          + (f": {safe(h.note)}" if h.note else "") for h in one.history), "",
    ]  # fmt: skip


def _data(r: Report) -> list[str]:
    data = r.data
    repeats = words.ANSWERS["cannot tell"]
    if data.repeats is not None:
        share = words.measured(data.repeats.value, data.repeats.interval, data.repeats.unit)
        repeats = f"{words.ANSWERS.get(data.repeats.state, data.repeats.state)}, {share}. {safe(data.repeats.summary)}"
    coverage = "cannot tell" if data.coverage is None else words.percent(data.coverage)
    return [
        "## Data", "", f"- Repeated rows: {repeats}",
        f"- Rows read: {words.whole(data.rows_read)}, distinct: {words.whole(data.distinct_rows)}, declared: "
        f"{words.whole(data.declared_rows)}; coverage: {coverage}; sample: "
        f"{f'1 row in {words.whole(data.sample)}' if data.sample else 'none'}",
        *(f"- {_answer(one)}" for one in data.answers), "", "What fingerprints cannot see:", "",
        *(f"- {safe(line)}" for line in data.blind), "",
        f"Initial parity: {_answer(r.parity) if r.parity else 'not judged'}", "",
    ]  # fmt: skip


def _answer(one: Judged) -> str:
    return f"{words.rule_title(one.rule)}: {words.ANSWERS.get(one.state, one.state)}. {safe(one.summary)}"


def _rules(r: Report) -> list[str]:
    rows = [
        [
            words.rule_title(one.rule), words.ANSWERS.get(one.state, one.state),
            safe(words.measured(one.value, one.interval, one.unit)),
            safe(words.limit(one.limit, one.unit) + (f" ({one.limit_source})" if one.limit_source else "")),
            f"{safe(one.summary)} Step {words.whole(one.at_step)}.",
        ]
        for one in r.rules
    ]  # fmt: skip
    lines = ["## How it was judged", ""]
    head = ["Rule", "Answer", "Value (95 %)", "Limit", "In words"]
    lines += [*_grid(head, rows), ""] if rows else ["Nothing was judged.", ""]
    for s in r.settings:
        what = f"{safe(words.setting(s.old))} → {safe(words.setting(s.new))}"
        lines.append(
            f"- {words.moment(s.at)} {safe(s.by)} changed {words.rule_title(s.rule)} ({s.scope}): {what}: "
            f"{safe(s.reason)}"
        )
    lines += ["" if r.settings else "Settings: none changed, all rules as shipped.", ""]
    lines += [f"- {safe(text)}" for text in r.step_meanings]
    lines += [f"- {safe(f'{c.metric} = {c.formula}')}: {safe(c.why)}" for c in r.conversions]
    return [
        *lines,
        "" if r.step_meanings or r.conversions else "No conversion of the trainer's numbers was declared.",
        "",
    ]


def _reference(r: Report) -> list[str]:
    if r.reference is None:
        return []
    one = r.reference
    return [
        "## Reference", "",
        f"- {safe(one.title)} ({safe(one.slug)}, version {safe(one.version)}), SHA-256 {one.digest}",
        f"- Source: {safe(one.url or 'not given')}, retrieved {safe(one.retrieved or 'not given')}",
        f"- Licence: {safe(one.licence)}", f"- Citation: {safe(one.citation)}",
        f"- Healthy reruns: {one.siblings or 'none'}",
        f"- Training loss: {safe(one.loss or 'not described')}",
        f"- Proven on equal batches: {'yes' if one.loss_proven else 'no'}",
        *(f"- Open question: {safe(text)}" for text in one.conflicts), "",
    ]  # fmt: skip


def _foot(r: Report) -> list[str]:
    left = [f"Left out here: {safe(', '.join(r.left_out))}.", ""] if r.left_out else []
    return ["---", "", *left, f"Run {r.run.id}. {r.schema}, written by {r.generator}. SHA-256 of the data: {r.digest}."]


def _grid(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    return [_row(head), _row(["---"] * len(head)), *(_row(row) for row in rows)]


def _row(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cells) + " |"
