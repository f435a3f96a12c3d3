"""What POST batches takes, and what it refuses with the name of the field."""

from __future__ import annotations

import gzip
import json
import time
import uuid
import zlib
from collections.abc import Iterator
from typing import Any

import pytest
import zstandard
from fastapi.testclient import TestClient
from sqlalchemy import Engine, func, select

from service.database.engine import reading
from service.database.models import Event, Journal, Metric, Receipt, RunState, Segment
from service.settings import Settings
from service.worker.seal import seal_due
from tests.ingest.store_client import Store, create_store

GOOD: dict[str, Any] = {
    "process": 0,
    "seq": 1,
    "sent_at": 1.0,
    "steps": [1, 2, 3],
    "times": [1.0, 2.0, 3.0],
    "metrics": {"train/ce_loss": [3.0, 2.0, 1.0], "heldout/a/ce_loss": [None, "NaN", None]},
}


def raw(store: Store, segment: str, body: bytes, **headers: str) -> Any:
    names = {name.replace("_", "-"): value for name, value in headers.items()}
    path = f"/api/v1/segments/{segment}/batches"
    return store.http.post(path, content=body, headers={"content-type": "application/json"} | names)


def changed(**fields: Any) -> dict[str, Any]:
    return GOOD | fields


MALFORMED: list[tuple[Any, int, str]] = [
    (changed(metrics={"train/ce_loss": [1, 2, 3], "x": [1, 2, "1.5"]}), 422, "metrics.x[2]"),
    (changed(metrics={"train/ce_loss": [1, 2, True]}), 422, "metrics.train/ce_loss[2]"),
    (changed(metrics={"train/ce_loss": [1, [2], 3]}), 422, "metrics.train/ce_loss[1]"),
    (changed(metrics={"train/ce_loss": [1, "inf", 3]}), 422, "metrics.train/ce_loss[1]"),
    (changed(metrics={"train/ce_loss": 1.0}), 422, "metrics.train/ce_loss"),
    (changed(metrics=[1]), 422, "metrics"),
    (changed(metrics={"train/ce_loss": [1, 2]}), 422, "metrics.train/ce_loss"),
    (changed(times=[1, 2]), 422, "times"),
    (changed(times=[1, 2, "NaN"]), 422, "times[2]"),
    (changed(tokens=[1, 2]), 422, "tokens"),
    (changed(tokens=[1, None, "NaN"]), 422, "tokens[2]"),
    (changed(tokens=[1, -1, 2]), 422, "tokens[1]"),
    (changed(steps=[1, 2]), 422, "metrics.heldout/a/ce_loss"),
    (changed(steps=[1, 2.5, 3]), 422, "steps[1]"),
    (changed(steps=[1, -2, 3]), 422, "steps[1]"),
    (changed(steps=[1, 2, 2**53]), 422, "steps[2]"),
    (changed(steps=[1, 2, 10**30]), 422, "steps[2]"),
    (changed(steps="1"), 422, "steps"),
    (changed(steps=[1, "2", 3]), 422, "steps[1]"),
    (changed(metrics={"": [1, 2, 3]}), 422, "metrics."),
    (changed(metrics={"é" * 129: [1, 2, 3]}), 422, "metrics." + "é" * 64),
    (changed(metrics={"a\0b": [1, 2, 3]}), 422, "metrics.a\0b"),
    (changed(metrics={"axis/time": [1, 2, 3]}), 422, "metrics.axis/time"),
    (changed(eval_sets={"other": "v1"}), 422, "eval_sets.other"),
    (changed(weights_segment="x"), 422, "weights_segment"),
    (changed(times=[1, 2, 1e300]), 422, "times[2]"),
    (changed(times=[1, -2, 3]), 422, "times[1]"),
    (changed(sent_at=1e300), 422, "sent_at"),
    (changed(tokens=[1, 2, 1e300]), 422, "tokens[2]"),
    (json.dumps(GOOD).replace('"sent_at": 1.0', '"sent_at": 1e999').encode(), 422, "sent_at"),
    (json.dumps(GOOD).replace("3.0, 2.0", "9" * 400 + ", 2.0").encode(), 422, "metrics.train/ce_loss[0]"),
    (json.dumps(GOOD).replace("3.0, 2.0", "9" * 5000 + ", 2.0").encode(), 422, "metrics.train/ce_loss[0]"),
    (changed(seq=-1), 422, "seq"),
    (changed(process=None), 422, "process"),
    ({key: value for key, value in GOOD.items() if key != "times"}, 422, "times"),
    ([], 422, "body"),
    (b"{", 400, "body"),
    (b"", 400, "body"),
    (b'{"steps": [NaN]}', 400, "body"),
    (b'{"metrics": {"\xff": [1]}}', 400, "body"),
    (b"[" * 100_000, 422, "body"),
    (json.dumps(GOOD).replace("3.0, 2.0", "1e999, 2.0").encode(), 422, "metrics.train/ce_loss[0]"),
]


class TestPostBatch:
    def test_the_same_again_is_a_duplicate_and_other_content_a_conflict(self, store: Store, engine: Engine) -> None:
        segment = store.start()
        first = store.post(segment, "batches", **GOOD)
        assert (first.status_code, first.json()) == (202, {"accepted": 4, "duplicate": False})
        again = store.post(segment, "batches", **changed(sent_at=99.0))
        assert (again.status_code, again.json()) == (202, {"accepted": 4, "duplicate": True})
        seal_all(engine)
        sealed = store.post(segment, "batches", **GOOD)
        assert (sealed.status_code, sealed.json()["duplicate"]) == (202, True)
        other = store.post(segment, "batches", **changed(times=[1.0, 2.0, 4.0]))
        assert other.status_code == 409
        assert other.json()["errors"][0]["field"] == "seq"
        assert store.post(segment, "batches", **changed(process=1)).json()["duplicate"] is False
        assert store.read("train/ce_loss")["train/ce_loss"]["values"] == [3.0, 2.0, 1.0]
        assert store.read("heldout/a/ce_loss")["heldout/a/ce_loss"] == {
            "steps": [2],
            "tokens": [20.0],
            "values": ["NaN"],
        }

    @pytest.mark.parametrize(("body", "status", "field"), MALFORMED)
    def test_names_the_field_that_is_wrong(self, quick: Store, body: Any, status: int, field: str) -> None:
        segment = quick.start()
        answer = raw(quick, segment, body if isinstance(body, bytes) else json.dumps(body).encode())
        assert answer.status_code == status, answer.text
        assert answer.headers["content-type"] == "application/problem+json"
        problem = answer.json()
        assert problem["status"] == status
        assert problem["errors"][0]["field"] == field
        assert set(problem) == {"type", "title", "status", "detail", "instance", "errors"}

    def test_says_in_words_what_is_wrong(self, quick: Store) -> None:
        segment = quick.start()
        text = json.dumps(GOOD)
        for body, said in (
            (text.replace("3.0, 2.0", "1e999, 2.0"), "larger than a 64-bit float holds"),
            (text.replace('"sent_at": 1.0', '"sent_at": 1e999'), "larger than a 64-bit float holds"),
            (text.replace('"seq": 1, ', ""), "seq: is missing"),
            (text.replace("[1.0, 2.0, 3.0]", "[1.0, 2.0, 1e300]"), "times[2]: expected a time in Unix seconds"),
        ):
            assert said in raw(quick, segment, body.encode()).json()["detail"]

    def test_stores_nothing_of_a_bad_batch(self, store: Store, engine: Engine) -> None:
        segment = store.start()
        assert store.post(segment, "batches", **changed(metrics={"a": [1, 2, 3], "b": [1, "x", 3]})).status_code == 422
        with reading(engine) as session:
            for model in (Journal, Receipt, Metric):
                assert session.scalar(select(func.count()).select_from(model)) == 0
        assert store.post(segment, "batches", **GOOD).json()["duplicate"] is False

    def test_unknown_segment_is_404(self, store: Store) -> None:
        assert store.post(str(uuid.uuid4()), "batches", **GOOD).status_code == 404
        answer = store.post("nonsense", "batches", **GOOD)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (422, "segment")

    def test_takes_gzip_and_zstd(self, store: Store) -> None:
        segment = store.start()
        for seq, (name, packed) in enumerate((("gzip", gzip.compress), ("zstd", zstandard.compress))):
            answer = raw(store, segment, packed(json.dumps(changed(seq=seq)).encode()), content_encoding=name)
            assert (answer.status_code, answer.json()["accepted"]) == (202, 4)

    @pytest.mark.parametrize("name", ["gzip", "zstd"])
    def test_refuses_what_does_not_decompress(self, quick: Store, name: str) -> None:
        segment = quick.start()
        packed = (gzip if name == "gzip" else zstandard).compress(json.dumps(GOOD).encode())
        for broken in (b"nonsense", packed[:-9], b""):
            answer = raw(quick, segment, broken, content_encoding=name)
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "body")
        assert raw(quick, segment, b"{}", content_encoding="br").status_code == 415
        assert raw(quick, segment, b"{}", content_type="text/plain").status_code == 415

    def test_bounds_bodies_before_it_holds_them(self, database_url: str) -> None:
        with TestClient(create_store(Settings(database_url=database_url, max_body_bytes=100_000))) as http:
            store = Store(http)
            segment = store.start()
            spaces = b" " * 60_000
            assert raw(store, segment, json.dumps(GOOD).encode() + spaces).status_code == 202
            bomb = zlib.compressobj(9, wbits=31)
            gzipped = b"".join(bomb.compress(b" " * 1_000_000) for _ in range(50)) + bomb.flush()
            assert len(gzipped) < 100_000
            zstd = zstandard.ZstdCompressor(write_content_size=False).compress(b" " * 50_000_000)
            for body, headers in (
                (2 * spaces, {}),
                (gzipped, {"content_encoding": "gzip"}),
                (zstd, {"content_encoding": "zstd"}),
            ):
                answer = raw(store, segment, body, **headers)
                assert (answer.status_code, answer.json()["errors"][0]["field"]) == (413, "body")

            def endless() -> Iterator[bytes]:
                while True:
                    yield spaces

            chunked = http.post(f"/api/v1/segments/{segment}/batches", content=endless_then_stop(endless()))
            assert chunked.status_code == 413

    def test_bounds_the_metrics_of_a_run(self, database_url: str) -> None:
        with TestClient(create_store(Settings(database_url=database_url, max_metrics_per_run=3))) as http:
            store = Store(http)
            segment = store.start()
            assert store.batch(segment, [1], {"a": [1.0], "b": [1.0], "empty": [None]}).status_code == 202
            body: dict[str, Any] = {
                "steps": [2, 3],
                "times": [2.0, 3.0],
                "metrics": {"a": [2.0, None], "c": [None, 2.0], "d": [2.0, 2.0]},
                "eval_sets": {"d": "v1", "c": "v2"},
                "seq": 70,
            }
            answer = store.post(segment, "batches", **body)
            refused = answer.json().pop("refused")
            assert (answer.status_code, answer.json()["accepted"]) == (202, 2)
            assert [entry["field"] for entry in refused] == ["metrics.d"]
            assert "3 metrics" in refused[0]["detail"]
            again = store.post(segment, "batches", **body).json()
            assert again == {"accepted": 2, "duplicate": True, "refused": refused}
            assert store.read("a", "b", "c") == {
                "a": {"steps": [1, 2], "tokens": [10.0, 20.0], "values": [1.0, 2.0]},
                "b": {"steps": [1], "tokens": [10.0], "values": [1.0]},
                "c": {"steps": [3], "tokens": [30.0], "values": [2.0]},
            }
            only = store.batch(segment, [4], {"d": [1.0], "e": [1.0]})
            assert (only.status_code, only.json()["accepted"], len(only.json()["refused"])) == (202, 0, 2)

    def test_keeps_state_of_the_run(self, store: Store, engine: Engine) -> None:
        first = store.start(started_at=100.0, sent_at=time.time())
        store.batch(first, [5, 9, 7], {"a": [1.0, 2.0, None]})
        assert state(engine) == (2, 9, 90.0, 2, 3, 1)
        second = store.start(started_at=200.0, sent_at=time.time(), start_step=6, start_tokens=66.0)
        assert state(engine)[:3] == (3, 6, 66.0)
        store.batch(first, [10], {"a": [3.0]})  # late, and superseded
        assert state(engine)[:3] == (4, 6, 66.0)
        store.batch(second, [7], {"a": [3.0]}, tokens=[80])
        assert state(engine)[:3] == (5, 7, 80.0)
        seal_all(engine)
        assert state(engine) == (5, 7, 80.0, 0, 0, 0)

    def test_remembers_evaluation_sets_and_their_changes(self, store: Store, engine: Engine) -> None:
        segment = store.start()
        for step, name in ((1, "v1"), (2, "v1"), (3, "v2")):
            store.batch(segment, [step], {"heldout/a/ce_loss": [1.0]}, eval_sets={"heldout/a/ce_loss": name})
        with reading(engine) as session:
            assert session.scalars(select(Metric.eval_set)).all() == ["v2"]
            events = session.scalars(select(Event).order_by(Event.id)).all()
            assert [(e.kind, e.step, e.value["value"]["set"]) for e in events] == [
                ("evaluation_set", 1, "v1"),
                ("evaluation_set", 3, "v2"),
            ]


class TestPutSegment:
    def test_the_same_again_is_harmless_and_another_body_a_conflict(self, store: Store, engine: Engine) -> None:
        segment = store.start(started_at=100.0, sent_at=50.0, config={"a": {"b": [1, None, "\u0000é"]}})
        body = {"project": store.project, "run": "run", "stage": "stage1", "started_at": 100.0}
        again = {
            "process": 3,
            "seq": 9,
            "sent_at": 51.0,
            "role": "reproduction",
            "kind": "trainer",
            "tokens_per_step": 10,
            "topology": {"hosts": 1},
            "config": {"a": {"b": [1, None, "\u0000é"]}},
            "sample_rows": 1,
        } | body
        answer = store.http.put(f"/api/v1/segments/{segment}", json=again)
        assert (answer.status_code, answer.json()) == (202, {"accepted": 1, "duplicate": True})
        other = store.http.put(f"/api/v1/segments/{segment}", json=again | {"start_step": 1})
        assert other.status_code == 409
        with reading(engine) as session:
            row = session.scalars(select(Segment)).one()
            assert row.started_at == pytest.approx(time.time() + 50.0, abs=20.0)  # its clock is slow
            assert row.config == {"a": {"b": [1, None, "\u0000é"]}}

    @pytest.mark.parametrize(
        ("field", "value"),
        [
            ("kind", "trainee"), ("role", "x"), ("start_step", -1), ("start_step", 1.5), ("start_tokens", -1.0),
            ("tokens_per_step", "many"), ("ramp[1]", [[5, 1], [5, 2]]), ("project", ""), ("run", "x" * 257),
            ("stage", "a\0"), ("forked_from.step", {"run": "r", "step": -1}), ("data.rows", {"rows": 0}),
            ("sample_rows", 0), ("started_at", None),
        ],
    )  # fmt: skip
    def test_names_the_field_that_is_wrong(self, quick: Store, field: str, value: Any) -> None:
        body = {"process": 0, "seq": 0, "sent_at": 1.0, "project": "p", "run": "r", "stage": "s", "started_at": 1.0}
        name = field.partition("[")[0].partition(".")[0]
        answer = quick.http.put(f"/api/v1/segments/{uuid.uuid4()}", json=body | {name: value})
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"] == field

    def test_survives_deep_nesting(self, quick: Store) -> None:
        body = b'{"config": ' + b'{"a": ' * 100_000
        answer = quick.http.put(f"/api/v1/segments/{uuid.uuid4()}", content=body)
        assert (answer.status_code, answer.json()["errors"][0]["field"]) == (400, "body")

    def test_a_run_keeps_its_role_reference_and_parent(self, store: Store) -> None:
        store.start(reference="olmo3-7b", forked_from={"run": "parent", "step": 5})
        body = {
            "process": 0, "seq": 0, "sent_at": 1.0, "started_at": 1.0,
            "project": store.project, "run": "run", "stage": "stage1",
        }  # fmt: skip
        for field, value in (("role", "reference"), ("reference", "x"), ("forked_from", {"run": "y", "step": 5})):
            answer = store.http.put(f"/api/v1/segments/{uuid.uuid4()}", json=body | {field: value})
            assert (answer.status_code, answer.json()["errors"][0]["field"]) == (409, field)


class TestOtherPosts:
    def test_items_events_and_finish(self, store: Store, engine: Engine) -> None:
        segment = store.start()
        for kind, body, accepted in (
            ("items", {"step": 5, "task": "arc_easy", "n": 9, "correct": "AAE="}, 9),
            ("events", {"step": 5, "kind": "checkpoint", "value": {"path": "gs://x"}, "at": time.time()}, 1),
            ("events", {"step": 6, "kind": "note", "value": None, "at": time.time(), "seq": 77}, 1),
            ("finish", {"at": time.time()}, 1),
        ):
            answer = store.post(segment, kind, **body)
            assert (answer.status_code, answer.json()) == (202, {"accepted": accepted, "duplicate": False}), answer.text
        assert store.post(segment, "events", step=6, kind="note", value=1, at=time.time(), seq=77).status_code == 409
        with reading(engine) as session:
            assert session.scalars(select(Segment.finished_at)).one() == pytest.approx(time.time(), abs=20.0)

    @pytest.mark.parametrize(
        ("kind", "body", "field"),
        [
            ("items", {"step": 1, "task": "t", "n": 9, "correct": "AA=="}, "correct"),
            ("items", {"step": 1, "task": "t", "n": 9, "correct": "*"}, "correct"),
            ("items", {"step": 1, "task": "t", "n": 0, "correct": ""}, "n"),
            ("events", {"step": 1, "kind": "x" * 33, "at": 1.0}, "kind"),
            ("events", {"step": "1", "kind": "note", "at": 1.0}, "step"),
            ("finish", {"at": "now"}, "at"),
            ("fingerprints", {"hashes": ["00000000000000f"]}, "hashes[0]"),
            ("fingerprints", {"hashes": ["00000000000000FF"]}, "hashes[0]"),
            ("fingerprints", {"hashes": ["0000000000000007"]}, "hashes[0]"),
            ("fingerprints", {"hashes": []}, "hashes"),
            ("fingerprints", {"seen": [[5, 4, 8]]}, "seen[0]"),
            ("fingerprints", {"seen": [[0, 2**50, 8]]}, "seen"),
            ("fingerprints", {"kind": "words"}, "kind"),
        ],
    )
    def test_names_the_field_that_is_wrong(self, quick: Store, kind: str, body: dict[str, Any], field: str) -> None:
        segment = quick.start()
        good = {
            "kind": "rows",
            "host": 0,
            "sample": 4,
            "steps": [1],
            "hashes": ["0000000000000008"],
            "seen": [[1, 1, 8]],
        }
        answer = quick.post(segment, kind, **(good | body if kind == "fingerprints" else body))
        assert answer.status_code == 422, answer.text
        assert answer.json()["errors"][0]["field"] == field


def seal_all(engine: Engine) -> None:
    """Seal every run as if it had been idle for long."""
    from service.worker.seal import seal_run

    with reading(engine) as session:
        runs = session.scalars(select(RunState.run_id)).all()
    for run in runs:
        seal_run(engine, run)
    assert seal_due(engine) == 0


def state(engine: Engine) -> tuple[Any, ...]:
    with reading(engine) as session:
        row = session.scalars(select(RunState)).one()
        return (
            row.data_version,
            row.last_step,
            row.last_tokens,
            row.journal_points,
            row.journal_steps,
            row.journal_rows,
        )


def endless_then_stop(parts: Iterator[bytes]) -> Iterator[bytes]:
    """Enough parts to be over every limit, without a length."""
    for _ in range(10):
        yield next(parts)
