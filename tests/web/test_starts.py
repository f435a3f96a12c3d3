"""The table of starts on a run's page."""

from __future__ import annotations

import re

from olmo3_config import OLMO3_7B

from tests.web.reading import HOSTILE, text_of
from tests.web.world import World


def test_starts_show_hardware_speed_mfu_and_changes(world: World) -> None:
    topology: dict[str, object] = {"hosts": 64, "devices": 512, "device_kind": "TPU7x"}
    first = world.start("mine", topology=topology, config=OLMO3_7B)
    world.send(first, [1, 2], {"throughput/tokens_per_second_per_device": [10_747.0, 10_747.0]})
    world.start("mine", start_step=2, topology=topology | {"device_kind": HOSTILE}, launch=2)
    page = world.client.get(f"/runs/{world.run_id('mine')}").text
    text = text_of(page)
    assert "Starts and hardware" in text
    assert "512 × TPU7x" in text
    assert "10,747" in text
    assert re.search(r"43\.4\u202f% exact, sliding windows counted; as MaxText counts: 44\.5\u202f%; as in PaLM", text)
    assert "topology.device_kind: TPU7x → <script>" in text
    assert "neither throughput/tokens_per_second_per_device nor throughput/step_seconds was logged" in text
    assert "<script>alert" not in page
