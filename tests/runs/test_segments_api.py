"""The starts of a run: what they ran on, what changed, how fast they were, and MFU or the reason why there is none."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from olmo3_config import OLMO3_7B
from runs_world import Api

RATE = "throughput/tokens_per_second_per_device"
SECONDS = "throughput/step_seconds"
V7X = {
    "hosts": 64,
    "processes": 64,
    "devices": 512,
    "device_kind": "TPU7x",
    "mesh": {"data": 512},
    "batch_shape": [512, 8192],
}


def mfu(segment: dict[str, Any]) -> dict[str, Any]:
    return {one["formula"]: one["mfu"] for one in segment["utilization"]}


def why(segment: dict[str, Any]) -> set[str | None]:
    return {one["why_not"] for one in segment["utilization"]}


def test_olmo3_on_v7x(api: Api) -> None:
    run, segment = api.start("mine", topology=V7X, config=OLMO3_7B, versions={"jax": "0.10.2", "config_hash": "aa"})
    api.log(segment, [1, 2, 3, 4, 5], RATE, [10_747.0, 10_747.0, 3_000.0, 10_747.0, "NaN"])  # step 3: a checkpoint
    (found,) = api.get(f"/runs/{run}/segments")["items"]
    assert (found["device_kind"], found["devices"], found["processes"]) == ("TPU7x", 512, 64)
    assert (found["mesh"], found["batch_shape"], found["config_hash"]) == ({"data": 512}, [512, 8192], "aa")
    assert (found["changes"], found["why_no_throughput"], found["superseded"]) == (None, None, False)
    assert found["tokens_per_second_per_device"] == 10_747.0
    assert (found["steps_measured"], found["measured_by"]) == (4, RATE)
    assert found["peak"]["tflops_per_device"] == 1153.5
    assert found["peak"]["devices_per_chip"] == 2
    # 47.763 GFLOP × 10,747 tokens/s ÷ 1153.5 TFLOP/s: 44.5 % as MaxText counts, 43.4 % in truth, 50.5 % as in PaLM.
    assert mfu(found) == {
        "exact": pytest.approx(0.4338, abs=1e-4),
        "maxtext": pytest.approx(0.4450, abs=1e-4),
        "palm": pytest.approx(0.5050, abs=1e-4),
    }
    assert why(found) == {None}


def test_what_changed_since_the_start_before(api: Api) -> None:
    run, _ = api.start("mine", topology=V7X, config=OLMO3_7B | {"lr": {"peak": 3e-4}}, started_at=1000.0)
    later = V7X | {"devices": 256, "mesh": {"data": 256}}
    api.start(
        "mine",
        start_step=10,
        topology=later,
        config=OLMO3_7B | {"lr": {"peak": 3e-4, "end": 0.0}, "trainer_hooks": {"steps": "new"}},
        versions={"python": "3.12"},
        tokens_per_step=256,
        started_at=2000.0,
    )
    api.start("mine", start_step=10, kind="evaluator", topology=later, started_at=2500.0)
    api.start("mine", start_step=20, topology=later, config=OLMO3_7B | {"lr": None}, started_at=3000.0)
    first, second, evaluator, third = api.get(f"/runs/{run}/segments")["items"]
    assert first["changes"] is evaluator["changes"] is None
    assert second["changes"] == [
        {"name": "topology.devices", "before": 512, "after": 256},
        {"name": "topology.mesh.data", "before": 512, "after": 256},
        {"name": "versions.python", "before": "3.11", "after": "3.12"},
        {"name": "tokens_per_step", "before": 512, "after": 256},
        {"name": "config.lr.end", "before": None, "after": 0.0},
    ]
    assert {change["name"] for change in third["changes"]} >= {"config.lr.peak", "config.lr.end"}
    assert third["changes_left_out"] == 0


def test_a_configuration_too_large_to_be_sent_shows_by_its_hash(api: Api) -> None:
    large = {"value": "left out: 2,000,000 bytes of JSON"}
    run, _ = api.start("mine", config=large, versions={"config_hash": "aa"}, started_at=1000.0)
    api.start("mine", config=large, versions={"config_hash": "bb"}, started_at=2000.0)
    _, second = api.get(f"/runs/{run}/segments")["items"]
    assert second["changes"] == [{"name": "config", "before": "hash aa", "after": "hash bb"}]


def test_throughput_from_the_seconds_of_a_step(api: Api) -> None:
    run, segment = api.start("mine", topology=V7X, config=OLMO3_7B, tokens_per_step=4_194_304)
    api.log(segment, [1, 2, 3], SECONDS, [0.762, 0.762, 9.0])
    (found,) = api.get(f"/runs/{run}/segments")["items"]
    assert found["tokens_per_second_per_device"] == pytest.approx(4_194_304 / 0.762 / 512)
    assert found["measured_by"] == SECONDS
    assert mfu(found)["maxtext"] == pytest.approx(0.4451, abs=1e-4)


def test_no_figure_without_what_it_rests_on(api: Api) -> None:
    cases: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
        (V7X | {"device_kind": "TPU v9"}, OLMO3_7B, RATE, "no peak is known for the device 'TPU v9'"),
        ({"hosts": 1}, OLMO3_7B, RATE, "the trainer did not say what device it runs on"),
        (V7X, {}, RATE, "the trainer sent no configuration, so the model's shape is not known"),
        (V7X, OLMO3_7B | {"num_experts": 8}, RATE, "num_experts = 8: only dense decoders are counted"),
        (V7X, OLMO3_7B, "train/ce_loss", f"neither {RATE} nor {SECONDS} was logged"),
        ({"devices": "many"}, OLMO3_7B, SECONDS, f"only {SECONDS} was logged, and the number of devices is not known"),
    ]
    for number, (topology, config, logged, reason) in enumerate(cases):
        run, segment = api.start(f"run {number}", topology=topology, config=config)
        api.log(segment, [1], logged, [1.0])
        (found,) = api.get(f"/runs/{run}/segments")["items"]
        assert set(mfu(found).values()) == {None}
        assert why(found) == {reason}
        assert found["why_no_throughput"] == (reason if "logged" in reason else None)
        assert found["devices"] == (512 if topology.get("devices") == 512 else None)  # "many" is no number


def test_only_the_exact_count_needs_to_know_which_layers_have_the_window(api: Api) -> None:
    run, segment = api.start("mine", topology=V7X, config=OLMO3_7B | {"decoder_block": "gpt3"})
    api.log(segment, [1], RATE, [10_747.0])
    (found,) = api.get(f"/runs/{run}/segments")["items"]
    assert [value is None for value in mfu(found).values()] == [True, False, False]
    assert found["utilization"][0]["why_not"].endswith("does not say which layers use it")


def test_a_superseded_start_keeps_its_own_figures(api: Api) -> None:
    run, first = api.start("mine", topology=V7X, config=OLMO3_7B, started_at=1000.0)
    api.log(first, [1, 2, 3], RATE, [9_000.0] * 3)
    _, second = api.start("mine", topology=V7X, config=OLMO3_7B, started_at=2000.0)
    api.log(second, [1, 2], RATE, [10_000.0] * 2)
    items = api.get(f"/runs/{run}/segments")["items"]
    assert [(item["superseded"], item["tokens_per_second_per_device"]) for item in items] == [
        (True, 9_000.0),
        (False, 10_000.0),
    ]


def test_no_run(api: Api) -> None:
    assert "There is no run" in api.get(f"/runs/{uuid4()}/segments", status=404)["detail"]
