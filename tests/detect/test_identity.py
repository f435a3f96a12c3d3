"""Rules definition, recipe and initial_parity: what a verdict `matching` rests on."""

import tomllib
from dataclasses import replace
from importlib import resources

import numpy as np
import pytest

from service.detect.engine import evaluate, verdict
from service.detect.facts import Loss, Recipe
from service.detect.inputs import DeclaredData, Deviation, RunView, Segment, Tolerance
from service.detect.judgement import Judgement
from service.detect.recipe import compare, of_stage

from .scenarios import HELD, TOKENS_PER_STEP, TRAIN, curve, judged, pair, series

WORDS = "Mean cross-entropy of the next token, no z-loss"
ENTRIES = {
    "model.d_model": 4096, "optimizer.b1": 0.9, "optimizer.weight_decay_exempt": ["embeddings"],
    "tokenizer": "allenai/dolma2-tokenizer", "precision": "bfloat16 parameters", "data.rows": 3200,
    "data.order_seed": 0, "schedule.peak": 3e-4,
}  # fmt: skip
CONFIG = {
    "base_emb_dim": 4096, "adam_b1": 0.9, "tokenizer_path": "allenai/dolma2-tokenizer", "learning_rate": 3e-4,
    "recipe": {"precision": "bfloat16  parameters", "optimizer": {"weight_decay_exempt": ["embeddings"]}},
    "loss": {"definition": WORDS},
}  # fmt: skip


def view(config: dict, recipe: Recipe | None = None, **changes) -> RunView:
    return replace(
        pair(1, steps=4_000), segments=[Segment(0, 0.0, 4, config=config)], data=DeclaredData(3200),
        recipe=recipe or Recipe(ENTRIES, Loss(WORDS)), **changes,
    )  # fmt: skip


def said(rule: str, found: RunView) -> Judgement:
    return judged(found, rule)[rule]


def test_a_recipe_that_is_alike_entry_by_entry_is_the_same():
    found = said("recipe", view(CONFIG))
    assert (found.state, found.value, found.n) == ("no", 0.0, 7)  # the seed of the order is data_order's


def test_each_difference_is_listed_with_both_values():
    found = said("recipe", view({**CONFIG, "adam_b1": 0.95, "base_emb_dim": 2048}))
    assert found.state == "yes"
    assert "model.d_model is 2048, the reference's 4096; optimizer.b1 is 0.95" in found.summary
    assert [c.weight for c in found.causes] == ["shown", "shown"]


def test_what_is_not_known_cannot_be_told():
    found = said("recipe", view({"base_emb_dim": 4096}))
    assert found.state == "cannot tell"
    assert "optimizer.b1" in found.summary
    assert said("recipe", view(CONFIG, Recipe())).state == "cannot tell"


def test_a_measured_learning_rate_shows_the_schedule():
    config = {k: v for k, v in CONFIG.items() if k != "learning_rate"}
    assert said("recipe", view(config)).state == "cannot tell"
    plain = view(config)
    at = plain.metrics[TRAIN].steps
    rate = series(at, np.full(len(at), 3e-4))
    logged = replace(
        plain, metrics={**plain.metrics, "optim/learning_rate": rate},
        reference={**plain.reference, "optim/learning_rate": rate},
    )  # fmt: skip
    found = said("recipe", logged)
    assert found.state == "no"
    assert any(e.name == "schedule" and "measured" in e.why for e in found.evidence)


def test_a_declared_difference_is_no_fault_and_no_identity():
    other = {**CONFIG, "adam_b1": 0.95}
    declared = Deviation("another beta", "optimizer", {TRAIN: 0.01}, end_step=9_000)
    found = said("recipe", view(other, deviations=[declared]))
    assert (found.state, "as declared" in found.summary) == ("cannot tell", True)
    elsewhere = replace(declared, item="data")
    assert said("recipe", view(other, deviations=[elsewhere])).state == "yes"


@pytest.mark.parametrize(
    ("reference", "run", "same"),
    [
        (4096, "4096", "same"), (1e-5, 0.00001, "same"), (0.1, 0.2, "differs"), (True, True, "same"),
        (True, False, "differs"), (1, "one", "unknown"), ("AdamW", "adamw", "same"), ("AdamW", "lion", "differs"),
        ("AdamW that skips", "AdamW", "unknown"), ([0.9, 0.95], [0.9, 0.95], "same"), ([0.9], [0.9, 0.95], "differs"),
        (["a b"], ["c d"], "unknown"), ("x", 3, "unknown"), (float("nan"), float("nan"), "differs"),
    ],
)  # fmt: skip
def test_values_are_compared_by_what_they_are(reference, run, same):
    [entry] = compare({"x": reference}, {"x": run}, {})
    assert entry.same == same


def test_the_loss_may_be_declared_counted_or_proven():
    assert said("definition", view(CONFIG)).state == "no"
    assert said("definition", view({**CONFIG, "loss": "Something else in words"})).state == "cannot tell"
    assert said("definition", view({})).state == "cannot tell"
    assert said("definition", view(CONFIG, Recipe())).state == "cannot tell"
    with_z = Recipe(ENTRIES, Loss(WORDS, z_loss=False))
    assert said("definition", view(CONFIG, with_z)).state == "cannot tell"
    assert said("definition", view({"loss": {"definition": WORDS, "z_loss": False}}, with_z)).state == "no"
    wrong = said("definition", view({"loss": {"definition": WORDS, "z_loss": True}}, with_z))
    assert (wrong.state, wrong.causes[0].weight) == ("yes", "shown")
    declared = Deviation("z-loss is logged", "loss", {TRAIN: 0.01}, end_step=9_000)
    allowed = view({"loss": {"z_loss": True}}, with_z, deviations=[declared])
    assert said("definition", allowed).state == "cannot tell"


@pytest.mark.parametrize(("share", "state"), [(8191 / 8192, "no"), (0.97, "yes"), (None, "cannot tell")])
def test_the_share_of_scored_tokens_is_part_of_the_definition(share, state):
    found = view(CONFIG, Recipe(ENTRIES, Loss(WORDS, scored_share=8191 / 8192)))
    if share is not None:
        at = found.metrics[TRAIN].steps
        scored = series(at, np.full(len(at), share * TOKENS_PER_STEP))
        found = replace(found, metrics={**found.metrics, "train/scored_tokens": scored})
    assert said("definition", found).state == state


def begun(gap: float, *, same_batches: bool, seed: int = 1, noise: float = 0.0255) -> RunView:
    """The first steps of a run beside its reference's, `gap` nats above."""
    rng = np.random.default_rng(seed)
    at = np.arange(1, 401)
    level = 2.0 + 9.0 * np.exp(-at / 80.0)
    batch = rng.normal(0.0, noise, 400)
    own = batch if same_batches else rng.normal(0.0, noise, 400)
    return RunView(
        {TRAIN: series(at, level + own + gap)}, {TRAIN: series(at, level + batch)},
        {TRAIN: Tolerance(0.015, "assumed", 0, noise, 50)}, [Segment(0, 0.0, 4)], "r", "1",
        recipe=Recipe(ENTRIES, Loss(WORDS)),
    )  # fmt: skip


@pytest.mark.parametrize(
    ("gap", "same_batches", "state"),
    [(0.0, True, "no"), (0.0, False, "no"), (0.2, False, "yes"), (0.06, True, "yes"), (0.045, True, "no")],
)
@pytest.mark.parametrize("seed", range(8))
def test_the_first_losses_are_those_of_the_reference_or_are_not(gap, same_batches, state, seed):
    found = said("initial_parity", begun(gap, same_batches=same_batches, seed=seed)).state
    assert found == state or (not same_batches and gap == 0.0 and found == "cannot tell")


def test_runs_that_part_after_the_first_update_began_alike():
    """Healthy pairs of a 7B run in two precisions, and of three seeds, part by nats within their first ten updates."""
    found = begun(0.0, same_batches=True)
    own = found.metrics[TRAIN]
    values = own.values.copy()
    values[2:10] += 3.0
    parted = replace(found, metrics={TRAIN: series(own.steps, values)})
    assert said("initial_parity", parted).state == "cannot tell"
    values[0] += 3.0
    assert said("initial_parity", replace(found, metrics={TRAIN: series(own.steps, values)})).state == "yes"


def test_noisy_first_losses_cannot_tell_and_later_ones_are_not_asked():
    assert said("initial_parity", begun(0.05, same_batches=False, noise=0.13)).state == "cannot tell"
    late = begun(0.0, same_batches=True)
    cut = {TRAIN: series(late.metrics[TRAIN].steps[50:], late.metrics[TRAIN].values[50:])}
    assert said("initial_parity", replace(late, metrics=cut)).state == "cannot tell"


@pytest.mark.parametrize(("kl", "state"), [(1e-6, "no"), (0.01, "yes"), (np.nan, "no"), (np.inf, "no")])
def test_the_divergence_from_the_references_model_counts(kl, state):
    found = begun(0.0, same_batches=True)
    found = replace(found, metrics={**found.metrics, "parity/kl": series([0], [kl])})
    assert said("initial_parity", found).state == state


@pytest.mark.parametrize(("gap", "state"), [(0.0, "no"), (0.07, "no"), (0.3, "yes")])
def test_the_heldout_loss_before_the_first_update_counts(gap, state):
    found = begun(0.0, same_batches=False, noise=0.2)
    at = np.arange(0, 401, 50)
    held = curve(at) + 0.6
    found = replace(
        found, heldout=HELD, metrics={**found.metrics, HELD: series(at, held + np.where(at == 0, gap, 0.0))},
        reference={**found.reference, HELD: series(at, held)},
    )  # fmt: skip
    assert said("initial_parity", found).state == state


def test_equal_losses_of_equal_batches_prove_the_definition_and_a_run_can_match():
    found = begun(0.0, same_batches=True)
    assert said("definition", found).state == "no"
    assert said("definition", begun(0.01, same_batches=True)).state == "cannot tell"
    said_all = evaluate(found)
    quiet = [replace(j, state="no") if j.state == "cannot tell" else j for j in said_all]
    assert verdict(quiet).state == "matching"
    assert verdict(said_all).state in ("consistent", "not enough data")


SPELLINGS = {
    "OLMo-core": {
        "model": {"d_model": 4096, "n_layers": 32, "vocab_size": 100352, "block": {
            "sequence_mixer": {"n_heads": 32, "n_kv_heads": 32, "rope": {"theta": 500_000}},
            "feed_forward": {"hidden_size": 11008}, "layer_norm": {"eps": 1e-6}}},
        "train_module": {
            "max_sequence_length": 8192, "max_grad_norm": 1.0, "z_loss_multiplier": 1e-5,
            "optim": {"lr": 3e-4, "betas": [0.9, 0.95], "eps": 1e-8, "weight_decay": 0.1, "sigma_factor": 6},
            "scheduler": {"warmup": 2000, "alpha_f": 0.1}},
    },
    "MaxText": {
        "base_emb_dim": 4096, "base_num_decoder_layers": 32, "vocab_size": 100352, "base_num_query_heads": 32,
        "base_num_kv_heads": 32, "rope_max_timescale": 500_000, "base_mlp_dim": 11008,
        "normalization_layer_epsilon": 1e-6, "max_target_length": 8192, "gradient_clipping_threshold": 1.0,
        "z_loss_multiplier": 1e-5, "learning_rate": 3e-4, "adam_b1": 0.9, "adam_b2": 0.95, "adam_eps": 1e-8,
        "adam_weight_decay": 0.1, "skip_step_scaling_factor": 6.0, "learning_rate_final_fraction": 0.1,
        "use_qk_norm": True, "sliding_window_size": 4096,
    },
    "Levanter": {
        "model": {"hidden_dim": 4096, "num_layers": 32, "num_heads": 32, "num_kv_heads": 32, "intermediate_dim": 11008,
                  "layer_norm_epsilon": 1e-6, "rope": {"theta": 500_000}, "max_seq_len": 8192},
        "optimizer": {"learning_rate": 3e-4, "weight_decay": 0.1, "beta1": 0.9, "beta2": 0.95, "epsilon": 1e-8,
                      "max_grad_norm": 1.0, "warmup": 2000, "min_lr_ratio": 0.1},
    },
}  # fmt: skip


def shipped_recipe(stage: str = "stage1") -> dict:
    text = (resources.files("service.references.bundles") / "olmo3-7b" / "reference.toml").read_text("utf-8")
    return of_stage(tomllib.loads(text)["recipe"], stage)


@pytest.mark.parametrize(("trainer", "least"), [("OLMo-core", 18), ("MaxText", 20), ("Levanter", 16)])
def test_the_shipped_recipe_is_found_in_each_trainers_spelling(trainer, least):
    entries = compare(shipped_recipe(), SPELLINGS[trainer], {"data.tokens_per_step": 4_194_304})
    assert [e for e in entries if e.same == "differs"] == []
    assert sum(e.same == "same" for e in entries) >= least


def test_another_beta_and_filter_are_named_and_the_rest_is_said_to_be_unknown():
    config = {**SPELLINGS["MaxText"], "adam_b2": 0.98, "olmo_apply_ngram_filter": True}
    found = said("recipe", view(config, Recipe(shipped_recipe(), Loss(WORDS))))
    assert found.state == "yes"
    assert {"optimizer.b2 is 0.98, the reference's 0.95", "data.ngram_filter is True, the reference's False"} <= {
        c.because for c in found.causes
    }
    assert "model.window_pattern" in next(str(e.why) for e in found.evidence if e.name == "entries not known")


def test_a_stage_has_its_own_batch_and_schedule():
    first, second = shipped_recipe(), shipped_recipe("stage2")
    assert (first["data.tokens_per_step"], second["data.tokens_per_step"]) == (4_194_304, 2_097_152)
    assert second["schedule.warmup"] == 0
    assert first["optimizer.b1"] == second["optimizer.b1"] == 0.9


def test_the_tokens_of_a_step_are_the_runs_own_count():
    right = said("recipe", view({}, Recipe({"data.tokens_per_step": round(TOKENS_PER_STEP)}, Loss(WORDS))))
    wrong = said("recipe", view({}, Recipe({"data.tokens_per_step": 2 * round(TOKENS_PER_STEP)}, Loss(WORDS))))
    assert (right.state, wrong.state) == ("no", "yes")
