"""What is said of a run: the rules that say it, and an opinion on its way into the database."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from service.alerts.record import Recorded, RunKey
from service.database.models import Run, RunState, RunWork
from service.detect import engine as rules
from service.detect.engine import Verdict
from service.detect.inputs import RunView
from service.detect.judgement import Judgement
from service.worker.seen import Seen


class RuleSet(Protocol):
    """How runs are judged; `service.detect.engine` unless a test brings its own."""

    @property
    def families(self) -> Mapping[str, str]:
        """Rule name to family, of every rule."""
        ...

    def evaluate(self, view: RunView, cache: Any) -> Sequence[Judgement]:
        """Every rule's answer."""
        ...

    def verdict(self, judgements: Sequence[Judgement], reference: str, version: str) -> Verdict:
        """What the answers come to."""
        ...


class ShippedRules:
    """The rules of `service.detect.engine`."""

    families: Mapping[str, str] = rules.FAMILY_OF_RULE

    def evaluate(self, view: RunView, cache: Any) -> Sequence[Judgement]:
        return rules.evaluate(view, cache)

    def verdict(self, judgements: Sequence[Judgement], reference: str, version: str) -> Verdict:
        return rules.verdict(judgements, reference, version)


@dataclass(frozen=True, slots=True)
class Subject:
    """A run to judge: its project's slug, how far its data have come, and what was judged (None: nothing yet)."""

    run: Run
    project: str
    state: RunState
    work: RunWork | None


@dataclass(frozen=True, slots=True)
class Opinion:
    """What is said of a run as of a version of its data."""

    data_version: int
    run: RunKey
    judgements: Sequence[Judgement]
    verdict: Verdict
    seen: Seen
    silenced: Mapping[str, str]
    done_version: int  # what was judged before

    @property
    def told(self) -> frozenset[str]:
        """Rules that say yes."""
        return frozenset(judgement.rule for judgement in self.judgements if judgement.state == "yes")


@dataclass(frozen=True, slots=True)
class Stored:
    """What was written of one run, and when: `changed` whether its verdict is another one."""

    opinion: Opinion
    at: float
    recorded: Sequence[Recorded]
    changed: bool

    def stands(self, work: RunWork) -> bool:
        """Whether nobody has written since."""
        return (work.done_version, work.done_at) == (self.opinion.data_version, self.at)


def changed_answers(before: Opinion, now: Opinion) -> list[Judgement] | None:
    """The answers that are other ones than before; None where they are of other rules."""
    old = {judgement.rule: judgement for judgement in before.judgements}
    if old.keys() != {judgement.rule for judgement in now.judgements}:
        return None
    return [j for j in now.judgements if old[j.rule] is not j and old[j.rule] != j]


def cannot_tell(families: Mapping[str, str], step: int, why: str) -> list[Judgement]:
    """No rule can tell, all for the same reason."""
    return [Judgement(rule, "cannot tell", step, f"Cannot tell: {why}.") for rule in families]
