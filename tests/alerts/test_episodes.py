"""The life of an alert, whatever the rules say in whatever order."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from service.alerts.episodes import Change, Episode, advance, materially_different
from service.detect.judgement import Cause, Judgement
from service.judgements.bodies import to_body

CLEAR = 60.0
RULES = ("train_drift", "train_only_drift", "repeated_rows")


def answer(rule: str, state: Any, step: int = 1, **more: Any) -> Judgement:
    return Judgement(rule, state, step, f"{rule} says {state}", **more)


def kinds(changes: Sequence[Change]) -> list[str]:
    return [change.kind for change in changes]


def play(*evaluations: tuple[float, list[Judgement]], clear: float = CLEAR) -> tuple[Episode | None, list[Change]]:
    episode, every = None, []
    for now, judgements in evaluations:
        episode, changes = advance(episode, judgements, now, clear)
        every += changes
    return episode, every


class TestOpening:
    def test_first_yes_opens_with_every_rule_that_says_yes(self) -> None:
        episode, changes = play((0.0, [answer("a", "yes"), answer("b", "no"), answer("c", "yes")]))
        assert episode is not None
        assert (episode.state, episode.rules) == ("firing", ("a", "c"))
        assert kinds(changes) == ["firing"]

    def test_no_and_cannot_tell_open_nothing(self) -> None:
        assert play((0.0, [answer("a", "no"), answer("b", "cannot tell")])) == (None, [])

    def test_a_resolved_episode_is_followed_by_another_one(self) -> None:
        before = Episode("resolved", ("a",), {"a": to_body(answer("a", "no"))})
        episode, changes = advance(before, [answer("b", "yes")], 0.0, CLEAR)
        assert episode is not None
        assert (episode.rules, kinds(changes)) == (("b",), ["firing"])


class TestJoining:
    def test_a_rule_joins_once_even_if_it_leaves_and_comes_back(self) -> None:
        _, changes = play(
            (0.0, [answer("a", "yes")]),
            (1.0, [answer("a", "yes"), answer("b", "yes", 2)]),
            (2.0, [answer("a", "yes"), answer("b", "no", 3)]),
            (3.0, [answer("a", "yes"), answer("b", "yes", 4)]),
        )
        assert kinds(changes) == ["firing", "joined", "evidence", "evidence"]
        assert changes[1].rules == ("b",)

    def test_acknowledged_stays_so_and_the_message_is_still_due(self) -> None:
        seen = Episode("acknowledged", ("a",), {"a": to_body(answer("a", "yes"))})
        episode, changes = advance(seen, [answer("a", "yes"), answer("b", "yes")], 1.0, CLEAR)
        assert episode is not None
        assert episode.state == "acknowledged"
        assert [(change.kind, change.is_message) for change in changes] == [("joined", True)]


class TestEnding:
    def test_resolved_after_the_clear_time_by_later_data(self) -> None:
        episode, changes = play(
            (0.0, [answer("a", "yes", 1)]),
            (1.0, [answer("a", "no", 2)]),
            (60.0, [answer("a", "no", 3)]),
            (61.0, [answer("a", "no", 4)]),
        )
        assert episode is not None
        assert episode.state == "resolved"
        assert kinds(changes) == ["firing", "evidence", "clearing", "resolved"]

    def test_the_same_data_again_resolves_nothing(self) -> None:
        episode, _ = play(
            (0.0, [answer("a", "yes", 1)]), (1.0, [answer("a", "no", 2)]), (999.0, [answer("a", "no", 2)])
        )
        assert episode is not None
        assert episode.is_open

    def test_a_return_before_the_clear_time_reopens_without_a_message(self) -> None:
        episode, changes = play(
            (0.0, [answer("a", "yes", 1)]), (1.0, [answer("a", "no", 2)]), (30.0, [answer("a", "yes", 3)])
        )
        assert episode is not None
        assert episode.clearing is None
        assert kinds(changes) == ["firing", "evidence", "clearing", "reopened", "evidence"]
        assert [c.kind for c in changes if c.is_message] == ["firing"]

    def test_cannot_tell_and_silence_hold_the_alert_open(self) -> None:
        for silence in ([answer("a", "cannot tell", 9)], []):
            episode, changes = play((0.0, [answer("a", "yes", 1)]), (500.0, silence), (1000.0, silence))
            assert episode is not None
            assert episode.active == ("a",)
            assert kinds(changes) == ["firing"]

    def test_a_rule_that_left_and_can_no_longer_tell_keeps_it_from_being_resolved(self) -> None:
        episode, _ = play(
            (0.0, [answer("a", "yes", 1), answer("b", "yes", 1)]),
            (1.0, [answer("a", "no", 2), answer("b", "no", 2)]),
            (100.0, [answer("a", "no", 3), answer("b", "cannot tell", 3)]),
        )
        assert episode is not None
        assert episode.is_open


class TestWithdrawn:
    def test_the_last_rule_that_leaves_resolves_it_at_once_with_the_reason(self) -> None:
        episode, _ = play((0.0, [answer("a", "yes", 1), answer("b", "yes", 1)]))
        said = [answer("a", "yes", 2), answer("b", "yes", 2)]
        episode, changes = advance(episode, said, 1.0, CLEAR, {"a": "muted by Ann"})
        assert episode is not None
        assert (episode.state, episode.active, kinds(changes)) == ("firing", ("b",), ["withdrawn"])
        assert changes[0].body == {"reason": "muted by Ann"}
        reasons = {"a": "muted by Ann", "b": "superseded"}
        episode, changes = advance(episode, said, 2.0, CLEAR, reasons)
        assert episode is not None
        assert (episode.state, kinds(changes)) == ("resolved", ["withdrawn", "resolved"])
        assert changes[1].body == {"step": 2, "reason": "superseded"}
        assert changes[1].rules == ("a", "b")

    def test_a_withdrawn_rule_opens_and_joins_nothing(self) -> None:
        assert advance(None, [answer("a", "yes")], 0.0, CLEAR, {"a": "muted"}) == (None, [])
        episode, _ = play((0.0, [answer("b", "yes")]))
        after, changes = advance(episode, [answer("a", "yes"), answer("b", "yes")], 1.0, CLEAR, {"a": "muted"})
        assert (after, changes) == (episode, [])

    def test_one_that_says_yes_again_once_it_may_is_back(self) -> None:
        episode, _ = play((0.0, [answer("a", "yes"), answer("b", "yes")]))
        episode, _ = advance(episode, [answer("a", "yes"), answer("b", "yes")], 1.0, CLEAR, {"a": "muted"})
        episode, changes = advance(episode, [answer("a", "yes"), answer("b", "yes")], 2.0, CLEAR)
        assert episode is not None
        assert (episode.active, kinds(changes)) == (("a", "b"), ["evidence"])

    def test_one_that_left_so_does_not_keep_the_others_from_ending(self) -> None:
        episode, _ = play((0.0, [answer("a", "yes", 1), answer("b", "yes", 1)]))
        every: list[Change] = []
        for now, step in ((1.0, 2), (70.0, 3)):
            said = [answer("a", "cannot tell", step), answer("b", "no", step)]
            episode, changes = advance(episode, said, now, CLEAR, {"a": "turned off"})
            every += changes
        assert episode is not None
        assert kinds(every) == ["evidence", "withdrawn", "clearing", "resolved"]

    @given(
        story=st.lists(
            st.tuples(
                st.lists(st.sampled_from(["yes", "no", "cannot tell"]), min_size=3, max_size=3),
                st.sets(st.sampled_from(RULES)),
            ),
            max_size=12,
        )
    )
    def test_whatever_is_withdrawn_each_episode_begins_and_ends_once(
        self, story: list[tuple[list[str], set[str]]]
    ) -> None:
        episode: Episode | None = None
        opened = resolved = 0
        for step, (states, out) in enumerate(story):
            said = [answer(rule, state, step) for rule, state in zip(RULES, states, strict=True)]
            episode, changes = advance(episode, said, 100.0 * step, CLEAR, dict.fromkeys(out, "muted"))
            opened += kinds(changes).count("firing")
            resolved += kinds(changes).count("resolved")
            assert episode is None or not set(episode.active) & out if episode and episode.is_open else True
            assert opened - resolved == (1 if episode is not None and episode.is_open else 0)
            again, none = advance(episode, said, 100.0 * step, CLEAR, dict.fromkeys(out, "muted"))
            assert none == [] or not (episode and episode.is_open)
            assert again == episode or not (episode and episode.is_open)


class TestEvidence:
    def test_small_moves_are_not_recorded_and_large_ones_are(self) -> None:
        old = to_body(answer("a", "yes", value=-0.10, interval=(-0.12, -0.08), since_step=(10, 20)))
        assert not materially_different(old, answer("a", "yes", 9, value=-0.11, since_step=(12, 20)))
        assert not materially_different(old, answer("a", "yes", 9, value=-0.122, since_step=(12, 20)))
        assert materially_different(old, answer("a", "yes", 9, value=-0.15, since_step=(12, 20)))
        assert materially_different(old, answer("a", "yes", 9, value=-0.10, since_step=(21, 30)))

    def test_another_first_cause_is_recorded(self) -> None:
        shard = Cause("double shard", "likely", "")
        old = to_body(answer("a", "yes", causes=[shard]))
        assert not materially_different(old, answer("a", "yes", causes=[Cause("double shard", "likely", "more")]))
        assert materially_different(old, answer("a", "yes", causes=[Cause("double shard", "shown", "")]))
        assert materially_different(old, answer("a", "yes", causes=[Cause("replay", "likely", ""), shard]))

    def test_a_value_that_is_no_number_is_compared_without_raising(self) -> None:
        old = to_body(answer("a", "yes", value=float("nan"), interval=(float("nan"), float("inf"))))
        assert not materially_different(old, answer("a", "yes", value=1.0))


states = st.sampled_from(["yes", "yes", "no", "no", "cannot tell", None])
values = st.sampled_from([0.01, 0.011, 0.05, 1.0])


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[float, list[Judgement]]]:
    """Evaluations at rising steps; some rules are silent, time passes in jumps around the clear time."""
    now, result = 0.0, []
    for step in range(1, draw(st.integers(1, 25)) + 1):
        now += draw(st.sampled_from([0.5, 20.0, 61.0]))
        said = [(rule, draw(states)) for rule in RULES]
        result.append((now, [answer(rule, s, step, value=draw(values)) for rule, s in said if s]))
    return result


def stored(episode: Episode | None) -> Episode | None:
    """The episode as it comes back from the database."""
    if episode is None:
        return None
    return Episode(episode.state, episode.rules, json.loads(json.dumps(dict(episode.judgements))), episode.clearing)


class TestAnyHistory:
    @settings(max_examples=60, deadline=None)
    @given(histories(), st.sets(st.integers(0, 24)))
    def test_messages_are_exactly_as_promised(
        self, history: list[tuple[float, list[Judgement]]], acknowledged_at: set[int]
    ) -> None:
        episode: Episode | None = None
        messages: list[Change] = []
        for i, (now, judgements) in enumerate(history):
            was_open = episode is not None and episode.is_open
            episode, changes = advance(episode, judgements, now, CLEAR)
            if kinds(changes).count("firing"):
                assert not was_open  # at most one open alert
                messages = []
            messages += [change for change in changes if change.is_message]
            if episode is None:
                assert not changes
                continue
            said = [(c.kind, rule) for c in messages for rule in c.rules if c.kind in ("firing", "joined")]
            assert messages[0].kind == "firing"
            assert [rule for _, rule in said] == list(episode.rules)  # each rule once, by firing or by joining
            assert kinds(messages).count("resolved") == (0 if episode.is_open else 1)
            if not episode.is_open:
                assert messages[-1].kind == "resolved"
                assert all(j.state != "yes" for j in judgements)
            elif i in acknowledged_at:
                episode = Episode("acknowledged", episode.rules, episode.judgements, episode.clearing)

    @settings(max_examples=60, deadline=None)
    @given(histories())
    def test_an_evaluation_again_changes_nothing(self, history: list[tuple[float, list[Judgement]]]) -> None:
        episode: Episode | None = None
        for now, judgements in history:
            episode, _ = advance(episode, judgements, now, CLEAR)
            if episode is not None and episode.is_open:
                assert advance(episode, judgements, now, CLEAR) == (episode, [])

    @settings(max_examples=60, deadline=None)
    @given(histories(), st.integers(0, 25))
    def test_a_restart_at_any_point_changes_nothing(
        self, history: list[tuple[float, list[Judgement]]], at: int
    ) -> None:
        whole, restarted = None, None
        for i, (now, judgements) in enumerate(history):
            whole, changes = advance(whole, judgements, now, CLEAR)
            restarted, again = advance(stored(restarted) if i == at else restarted, judgements, now, CLEAR)
            assert stored(restarted) == stored(whole)
            assert kinds(again) == kinds(changes)

    @settings(max_examples=60, deadline=None)
    @given(histories())
    def test_flapping_faster_than_the_clear_time_is_one_alert(
        self, history: list[tuple[float, list[Judgement]]]
    ) -> None:
        opened = 0
        episode: Episode | None = None
        for i, (_, judgements) in enumerate(history):
            episode, changes = advance(episode, judgements, i * CLEAR / 30.0, CLEAR)
            opened += kinds(changes).count("firing")
        assert opened <= 1


class TestClearLevel:
    def test_a_gap_that_has_come_back_clears_only_below_the_clear_level(self) -> None:
        far = answer("train_drift", "yes", 1, value=-0.030, limit=0.015)
        near = answer("train_drift", "no", 2, value=-0.014, limit=0.015)
        below = answer("train_drift", "no", 3, value=-0.011, limit=0.015)
        episode, changes = play((0.0, [far]), (1.0, [near]), (500.0, [near]))
        assert episode is not None
        assert (episode.active, kinds(changes)) == (("train_drift",), ["firing"])
        episode, changes = play((0.0, [far]), (1.0, [near]), (2.0, [below]), (90.0, [answer("train_drift", "no", 4)]))
        assert kinds(changes) == ["firing", "evidence", "clearing", "resolved"]

    def test_the_other_side_of_the_reference_is_no_longer_near(self) -> None:
        worse = answer("heldout_regression", "yes", 1, value=0.03, limit=0.02)
        better = answer("heldout_regression", "no", 2, value=-0.05, limit=0.02)
        _, changes = play((0.0, [worse]), (1.0, [better]))
        assert kinds(changes) == ["firing", "evidence", "clearing"]

    def test_flapping_around_the_limit_is_one_alert_without_a_reopening(self) -> None:
        every = [
            (100.0 * step, [answer("train_drift", "yes" if step % 2 else "no", step, value=0.0145 + 0.001 * (step % 2),
                                   limit=0.015)])
            for step in range(1, 30)
        ]  # fmt: skip
        _, changes = play(*every)
        assert kinds(changes) == ["firing"]
