"""Name maps: what they do to names and values, and that they mean what the importers' maps mean."""

from __future__ import annotations

import math
import re
from collections import Counter
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import pytest
from adapter_spool import recorded
from hypothesis import given
from hypothesis import strategies as st

import trainer_hooks
from service.importers.canonical import Target, naming
from trainer_hooks.names import CANONICAL, FILES, MAX_OTHERS, Entry, NameMap, Translator, load

MAPS = sorted(file.stem for file in FILES.glob("*.toml"))
FLOATS = st.floats(allow_nan=True, allow_infinity=True)


def translate(names: NameMap, values: dict[str, float]) -> dict[str, float]:
    refused: list[str] = []
    found = Translator(names)(values, lambda reason, message: refused.append(message))
    assert not refused
    return found


def write(folder: Path, text: str) -> Path:
    path = folder / "ours.toml"
    path.write_text('title = "Ours"\n[steps]\ntrain = 0\neval = 0\nmeaning = "as ours"\n' + text)
    return path


@pytest.mark.parametrize("name", MAPS)
def test_every_target_is_a_name_of_ours(name: str) -> None:
    for entry in load(name).entries:
        target = re.sub(r"\{\w+\}", "any", entry.to)
        assert CANONICAL.fullmatch(target) or target in ("axis/tokens", "throughput/mfu"), entry.name


@pytest.mark.parametrize(("name", "to"), [("train/CE loss", "train/ce_loss"), ("other", "other")])
def test_a_value_without_a_conversion_keeps_its_bits(name: str, to: str) -> None:
    assert repr(translate(load("olmo_core"), {name: -0.0})) == repr({to: -0.0})


@given(FLOATS, FLOATS, st.integers(1, 64))
def test_maxtext_loses_its_z_loss(loss: float, z: float, accumulation: int) -> None:
    values = {"learning/lm_loss": loss, "learning/z_loss": z}
    found = translate(load("maxtext").given(accumulation=accumulation), values)
    assert found.pop("raw/maxtext/learning/lm_loss") == pytest.approx(loss, abs=0, rel=0, nan_ok=True)
    assert found.pop("raw/maxtext/learning/z_loss") == pytest.approx(z, abs=0, rel=0, nan_ok=True)
    expected = {"train/ce_loss": loss - z / accumulation, "train/z_loss": z / accumulation}
    assert found == pytest.approx(expected, nan_ok=True)


@given(st.integers(1, 512), st.integers(0, 511), st.integers(2, 64), st.floats(0.1, 12))
def test_olmo_core_without_filtered_rows_in_the_denominator(rows: int, filtered: int, length: int, ce: float) -> None:
    # As train_module.py: labels are shifted, so that a row has length − 1; filtered rows have none, but count in full.
    filtered = min(filtered, rows - 1)
    scored = (rows - filtered) * (length - 1)
    logged = {
        "train/CE loss": ce * scored / (scored + filtered * length),
        "train/masked labels (%)": (rows * length - scored) / (rows * length),
        "train/masked instances (%)": filtered / rows,
    }
    assert translate(load("olmo_core"), logged)["train/ce_loss"] == pytest.approx(ce)


@given(FLOATS)
def test_a_perplexity_never_raises(perplexity: float) -> None:
    found = translate(load("clu"), {"eval_perplexity": perplexity})["heldout/val/ce_loss"]
    expected = math.log(perplexity) if perplexity > 0 else math.nan
    assert found == pytest.approx(expected, nan_ok=True)


def test_a_loss_goes_before_its_perplexity() -> None:
    found = translate(load("clu"), {"train_perplexity": 20.0, "train_loss": 3.0})
    assert found == {"train/ce_loss": 3.0, "train_perplexity": 20.0}


def test_our_own_names_go_before_the_map() -> None:
    values = {"learning/lm_loss": 3.5, "train/ce_loss": 3.0, "heldout/c4_en/ce_loss": 3.25}
    assert translate(load("maxtext"), values) == values


def test_an_entry_is_passed_over_where_what_it_uses_is_missing() -> None:
    assert translate(load("maxtext"), {"learning/lm_loss": 3.5}) == {"train/ce_loss": 3.5}


def test_unknown_names_are_bounded_and_leave_room_for_the_loss() -> None:
    translator, refused = Translator(load("clu")), []
    values = {f"histogram/{i}": 1.0 for i in range(MAX_OTHERS + 5)} | {"loss": 2.0, "downstream/arc/accuracy": 0.5}
    for _ in range(2):
        found = translator(dict(values), lambda reason, message: refused.append(message))
        assert len(found) == MAX_OTHERS + 2
        assert (found["train/ce_loss"], found["downstream/arc/accuracy"]) == (2.0, 0.5)
    assert len(refused) == 10


@pytest.mark.parametrize(
    ("text", "fault"),
    [
        ('[[metrics]]\nname = "a"\nto = "b"\nvalue = "x.real"', "no arithmetic"),
        ('[[metrics]]\nname = "a"\nto = "b"\nvalue = "open(x)"', "no arithmetic"),
        ('[[metrics]]\nname = "a"\nto = "b"\nvalue = "x ** 9 ** 9"', "no arithmetic"),
        ('[[metrics]]\nname = "a"\nto = "b"\nvalue = "x - y"', "no arithmetic over x"),
        ('[[metrics]]\nname = "a"\nto = "b"\nvalue = "x -"', "invalid syntax"),
        ('[[metrics]]\nname = "a"', "to"),
        ("[metrics]\na = 3", "has no attribute"),
        ("[[metrics", "Expected"),
    ],
)
def test_a_broken_map_says_what_is_wrong(tmp_path: Path, text: str, fault: str) -> None:
    with pytest.raises(ValueError, match=r"the name map ours\.toml is not valid") as raised:
        load(write(tmp_path, text))
    assert fault in str(raised.value)


def test_an_unknown_map_and_an_unknown_parameter_are_named() -> None:
    with pytest.raises(ValueError, match=r"there are axlearn, clu, .*and files that end in \.toml"):
        load("megatron")
    with pytest.raises(ValueError, match="the names of MaxText have no parameter microbatches"):
        load("maxtext").given(microbatches=4)


def test_a_map_of_ones_own_in_a_run(tmp_path: Path, environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    path = write(
        tmp_path,
        '[[metrics]]\nname = "eval/{set}/bits"\nto = "heldout/{set}/ce_loss"\nvalue = "x * log(2)"\n'
        '[[metrics]]\nname = "consumed"\nto = "tokens"\n',
    )
    with trainer_hooks.start("run", project="p", names=path, strict=True) as run:
        run.log(5, {"eval/c4-en/bits": jnp.float32(4), "tokens": 7, "consumed": 320})
        run.log(6, {"eval/c4-en/bits": 3.0, "consumed": float("nan")})  # a count that is none costs no value
        run.log(7, {"consumed": 448}, tokens=450)
    (segment,) = recorded(environment)
    assert segment.series("heldout/c4_en/ce_loss") == pytest.approx({5: 4 * math.log(2), 6: 3 * math.log(2)})
    assert segment.series("raw/ours/eval/c4-en/bits") == {5: 4.0, 6: 3.0}
    assert segment.series("tokens") == {5: 7.0}  # a name like another
    assert segment.tokens == {5: 320}
    assert segment.body["config"]["trainer_hooks"]["conversions"] == [
        {"metric": "heldout/{set}/ce_loss", "from": "eval/{set}/bits", "formula": "eval/{set}/bits * log(2)", "why": ""}
    ]


def test_a_name_that_is_no_text_is_refused(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    run = trainer_hooks.start("run", project="p", names="clu")
    run.log(1, {3: 1.0, "loss": 2.0})  # type: ignore[dict-item]
    assert run.finish().counts == {"refused": 1}
    assert recorded(environment)[0].points == {(1, "train/ce_loss"): 2.0}


def test_a_map_that_does_not_exist_gives_one_warning_and_no_run(
    environment: Path, caplog: pytest.LogCaptureFixture
) -> None:
    run = trainer_hooks.start("run", project="p", names="nothing")
    run.log(1, {"loss": 2.0})
    assert run.finish().sent == 0
    assert "there is no name map 'nothing'" in caplog.text


def test_the_segment_says_what_the_configuration_was(environment: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PACENOTE_MODE", "offline")
    hashes: list[str] = []
    for config in ({"a": 1, "b": [2]}, {"b": [2], "a": 1}, {"a": 1, "b": ["x" * 9_000] * 200}, {"a": 2}):
        trainer_hooks.start("run", project="p", config=config, mesh={"data": 8}, batch_shape=(512, 8192)).finish()
        hashes = [segment.body["versions"]["config_hash"] for segment in recorded(environment)]
    first, same, large, other = hashes
    assert first == same
    assert len({first, large, other}) == 3
    segments = recorded(environment)
    assert segments[2].body["config"]["value"].startswith("left out: ")
    assert segments[0].body["topology"]["mesh"] == {"data": 8}
    assert segments[0].body["topology"]["batch_shape"] == [512, 8192]


# --- the importers' maps ---

# Which map of the importers reads a log of which trainer. The usual names read the others: what their step is, nobody
# knows.
SAME = {"maxtext": "tensorboard", "olmo_core": "tensorboard", "hf_trainer": "hf_trainer"}


def imported(trainer: str, name: str) -> Target | None:
    """What the importers make of a metric that stands alone in a log."""
    return naming(SAME.get(trainer, "csv"), [name]).known.get(name)


def pairs() -> list[Any]:
    found: list[Any] = []
    for trainer in MAPS:
        for entry in load(trainer).entries:
            name = re.sub(r"\{\w+\}", "some", entry.name)
            target = imported(trainer, name)
            if target is not None:
                found.append(pytest.param(trainer, entry, name, target, id=f"{trainer}: {entry.name} {entry.value}"))
    return found


@pytest.mark.parametrize(("trainer", "entry", "name", "target"), pairs())
def test_hook_and_importers_mean_the_same(trainer: str, entry: Entry, name: str, target: Target) -> None:
    names = load(trainer)
    ours = re.sub(r"\{\w+\}", "some", entry.to)
    assert ours.replace("axis/tokens", "tokens") == target.metric
    if trainer in SAME:
        assert (names.eval_shift if ours.startswith(("heldout", "downstream")) else names.shift) == target.shift
    # An importer reads one column; what the hook takes off (z-loss, filtered rows) is nothing where it is 0.
    if entry.to != "axis/tokens":
        others = dict.fromkeys(entry.uses.values(), 0.0)
        found = translate(names, {name: 20.0, **others})
        assert found[ours] == pytest.approx(target.value(20.0))


def test_enough_names_are_shared_for_that_to_mean_something() -> None:
    shared = Counter(case.values[0] for case in pairs())
    assert min(shared["maxtext"], shared["olmo_core"]) >= 12
    assert shared["hf_trainer"] == len(load("hf_trainer").entries)
    assert shared["clu"] >= 20
