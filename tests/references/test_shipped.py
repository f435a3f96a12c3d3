"""The bundles that come with the program hold what their sources hold."""

from __future__ import annotations

from service.references.bundle import Bundle, load_bundle
from service.references.shipped import BUNDLES, shipped_bundles

ITEMS = {
    "arc_challenge_test_mc_5shot_fast": 1172,
    "arc_easy_test_mc_5shot_fast": 2376,
    "basic_skills_arithmetic_rc_5shot": 1047,
    "basic_skills_coding_rc_5shot": 1012,
    "basic_skills_common_knowledge_rc_5shot": 1037,
    "basic_skills_logical_reasoning_rc_5shot": 1118,
    "basic_skills_pattern_rc_5shot": 534,
    "basic_skills_string_operations_rc_5shot": 1219,
}
HELDOUT = ["heldout/c4_en/ce_loss", "heldout/pile/ce_loss", "heldout/dolma_common_crawl/ce_loss"]


def olmo() -> Bundle:
    return load_bundle(BUNDLES / "olmo3-7b")


def points(bundle: Bundle, stage: str) -> dict[str, dict[int, set[float]]]:
    found: dict[str, dict[int, set[float]]] = {}
    for series in bundle.series:
        if series.stage == stage and not series.sibling:
            for metrics in series.curves.values():
                for metric, curve in metrics.items():
                    for step, value in zip(curve.steps.tolist(), curve.values.tolist(), strict=True):
                        found.setdefault(metric, {}).setdefault(step, set()).add(value)
    return found


def test_every_shipped_bundle_is_good() -> None:
    slugs = [load_bundle(path).description.slug for path in shipped_bundles()]
    assert "olmo3-7b" in slugs
    assert len(set(slugs)) == len(slugs)


def test_olmo_points() -> None:
    first, second = points(olmo(), "stage1"), points(olmo(), "stage2")
    assert {metric: len(steps) for metric, steps in first.items()} == {"train/ce_loss": 3067} | dict.fromkeys(
        HELDOUT, 141
    )
    assert {metric: len(steps) for metric, steps in second.items()} == {"train/ce_loss": 1824}
    assert first["heldout/c4_en/ce_loss"][10_000] == {2.938889503479004}
    assert first["heldout/c4_en/ce_loss"][1_410_000] == {2.4691057205200195}
    assert first["train/ce_loss"][2] == {12.21056}
    assert second["train/ce_loss"][47_670] == {1.21172}


def test_olmo_stages_and_tasks() -> None:
    content = olmo().description
    assert [(s.name, s.steps, s.tokens_per_step, s.token_offset, s.series is not None) for s in content.stages] == [
        ("stage1", 1_413_814, 4_194_304, 0, True),
        ("stage2", 47_684, 2_097_152, 5_929_965_715_456, True),
        ("stage3", 11_921, 4_194_304, 6_029_966_311_424, False),
    ]
    for before, after in zip(content.stages, content.stages[1:], strict=False):
        assert before.token_offset + before.steps * before.tokens_per_step == after.token_offset
    assert {task.key: task.items for task in content.tasks} == ITEMS
    assert not any(task.published for task in content.tasks), "no accuracies are public"
    assert [entry.metric for entry in content.heldout] == HELDOUT
    assert content.heldout[0].primary
    assert "ai2-llm/Olmo-3-1025-7B" in content.source.url
    assert len(content.conflicts) >= 5


def test_olmo_segments_are_kept_in_order_of_launch() -> None:
    stage1, stage2 = (series for series in olmo().series if not series.sibling)
    launched = [launch.launched for launch in stage1.launches]
    assert len(launched) == 30
    assert launched == sorted(launched, key=lambda at: at or 0)
    assert stage1.launches[-1].segment == "ej79z38y"
    assert [launch.segment for launch in stage2.launches] == ["j9nypgrc", "zxv811e1", "ycefe7k4"]
    overlap = stage1.curves["t8akxzcj"]["train/ce_loss"], stage1.curves["iy8yokpd"]["train/ce_loss"]
    assert overlap[0].steps.max() > overlap[1].steps.min(), "a restart went over the same steps again"
