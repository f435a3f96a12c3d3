"""What rule `data_order` says where row fingerprints of the reference are at hand: which rows came at which step."""

from __future__ import annotations

from service.detect.findings import Findings
from service.detect.judgement import Cause, Evidence, Judgement, State
from service.detect.same_rows import LEAST, Beside

LIMIT_SOURCE = "equal rows at equal steps have equal fingerprints"


def tells(found: Beside | None) -> bool:
    """Whether the rows alone say in which order the run reads."""
    return found is not None and found.compared >= LEAST and found.relation != "not told"


def judge(rule: str, name: str, findings: Findings, found: Beside, beside: list[Evidence]) -> Judgement:
    """The answer by the rows; `name` is that of the evidence for the order found, `beside` what the losses say."""
    same = found.relation in ("same", "same again")
    departs = found.agreed is not None
    answer = "same" if same else "departs" if departs else "different"
    fault = not same and findings.view.same_order_declared
    state: State = "yes" if fault else "no"
    since = found.since if fault else None
    tokens = (findings.tokens_at(since[0]), findings.tokens_at(since[1])) if since is not None else None
    share = found.same / found.compared
    evidence = [Evidence(name, answer, "", "by the fingerprints of rows at equal steps"), *_evidence(found), *beside]
    return Judgement(
        rule, state, findings.at_step, said(found, findings.view.reference_name or "the reference"), since, tokens,
        share, None, "share", 1.0, LIMIT_SOURCE, found.compared, evidence, _causes(findings, found) if fault else [],
        ["Compare seed, shard count and batch size of the data loader with the reference's recipe.",
         "Compare the loader's position after the newest restart with updates made x rows per step."] if fault else [],
    )  # fmt: skip


def said(found: Beside, where: str) -> str:
    """One sentence on the rows beside those of `where`."""
    sampled = f"{found.same:,} of {found.compared:,} sampled rows at the same step"
    if found.relation == "same":
        return f"The run reads the same rows as {where} at the same steps through step {found.through:,}: {sampled}."
    if found.differs is None or found.since is None:
        return f"Too few sampled rows to say whether they are those of {where}: {sampled}."
    low, high = found.since
    first = f"It read them through step {found.agreed:,} and" if found.agreed is not None else "It read"
    first = f"{first} other ones since step {high:,}" + (
        f" at the latest ({low:,} at the earliest)" if low < high else ""
    )
    if found.relation == "same again":
        return (
            f"The run reads the same rows as {where} again: {sampled}, other ones at {found.wrong_steps:,} steps, the "
            f"first of them step {high:,}."
        )
    newest = f"of the newest {found.looked:,} sampled rows"
    if found.relation == "shifted":
        what = f"the same rows {away(found.shift)} ({found.steady:.0%} {newest})"
    elif found.relation == "other order":
        what = f"its rows in another order ({found.known:.0%} {newest} are among them)"
    elif found.relation == "other rows":
        what = f"other rows ({found.known:.0%} {newest} are among its rows)"
    else:
        what = "others; it is too early to say which"
    start = "The run no longer reads" if found.agreed is not None else "The run does not read"
    return f"{start} the rows of {where} at the same steps, but {what}. {first}; {sampled}."


def away(shift: int) -> str:
    """How far a shift is, in words."""
    steps = abs(shift)
    return f"{steps:,} step{'s' if steps != 1 else ''} {'later' if shift > 0 else 'earlier'} in its order"


def _evidence(found: Beside) -> list[Evidence]:
    through = "none" if found.through is None else f"through step {found.through:,}"
    why = f"{found.same:,} of {found.compared:,} sampled rows, 1 in {found.sample:,}, over {found.steps:,} steps"
    made = [Evidence("the same rows", through, "", why)]
    if found.differs is not None:
        made.append(Evidence("other rows since", found.differs, "steps", f"at {found.wrong_steps:,} steps in all"))
        why = f"of {found.looked:,} sampled rows since step {found.look_from:,}: {found.known:.0%} are the reference's"
        made.append(Evidence("what is read instead", found.relation, "", why))
    if found.relation == "shifted":
        made.append(Evidence("shift of the rows", found.shift, "steps", f"{found.steady:.0%} lie exactly so far away"))
    if found.partly:
        made.append(Evidence("steps reported in part", found.partly, "steps", "some host has not sent its rows"))
    return made


def _causes(findings: Findings, found: Beside) -> list[Cause]:
    low, high = found.since or (0, 0)
    restart = next(
        (s.start_step for s in findings.view.segments if s.start_step and low - 1 <= s.start_step <= high), 0
    )
    if found.relation == "shifted":
        name = "data ahead of the weights" if found.shift > 0 else "data behind the weights"
        at = f" since the restart at step {restart:,}" if restart else ""
        return [Cause(name, "shown", f"its rows are those of the reference {away(found.shift)}{at}")]
    made: list[Cause] = []
    if restart:
        because = f"the trainer started at step {restart:,}"
        made.append(Cause("position of the data lost at a restart", "likely", because))
    if found.relation == "other order":
        made.append(Cause("another seed or sharding of the data", "likely", "the rows are the reference's own"))
    else:
        because = f"{found.known:.0%} of the newest rows are the reference's"
        made.append(Cause("another mix, tokenizer or packing of the data", "likely", because))
    return made
