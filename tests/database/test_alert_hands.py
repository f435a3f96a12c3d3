"""The upgrade to 0006 keeps alerts, and gives the changes that are there their places in the stream."""

from __future__ import annotations

from uuid import uuid4

from alembic import command
from sqlalchemy import Engine, text

from service.database.migrate import alembic_config


def test_a_filled_database_is_upgraded(engine: Engine) -> None:
    command.downgrade(alembic_config(engine), "0005")
    with engine.begin() as connection:
        run = {"uuid": uuid4().hex, "alert": uuid4().hex, "other": uuid4().hex, "channel": uuid4().hex}
        connection.execute(text("INSERT INTO project (id, slug, created_at) VALUES (1, 'p', 0)"))
        connection.execute(
            text(
                "INSERT INTO run (id, uuid, project_id, name, stage, role, token_offset, created_at) "
                "VALUES (1, :uuid, 1, 'r', 's', 'reproduction', 0, 0)"
            ),
            run,
        )
        for key, uuid in ((1, run["alert"]), (2, run["other"])):
            connection.execute(
                text(
                    "INSERT INTO alert (id, uuid, run_id, family, state, severity, title, rules, judgements, "
                    "opened_at, opened_step, updated_at) "
                    "VALUES (:key, :uuid, 1, 'f', 'firing', 'critical', 't', '[]', '{}', 0, 1, 0)"
                ),
                {"key": key, "uuid": uuid},
            )
        for alert, number, at in ((1, 1, 1.0), (1, 2, 4.0), (2, 1, 2.0), (2, 2, 3.0)):
            connection.execute(
                text("INSERT INTO alert_change (alert_id, number, kind, at, body) VALUES (:a, :n, 'firing', :t, '{}')"),
                {"a": alert, "n": number, "t": at},
            )
        connection.execute(
            text(
                "INSERT INTO channel (id, uuid, name, kind, url, enabled, created_at) "
                "VALUES (1, :channel, 'c', 'slack', 'u', true, 0)"
            ),
            run,
        )
    command.upgrade(alembic_config(engine), "head")
    with engine.connect() as connection:
        order = connection.execute(text("SELECT alert_id, number FROM alert_change ORDER BY event")).all()
        assert [tuple(row) for row in order] == [(1, 1), (2, 1), (2, 2), (1, 2)]
        kept = connection.execute(text("SELECT muted_until, assignee, held FROM alert")).all()
        assert {tuple(row) for row in kept} == {(None, None, None)}
        channel = connection.execute(text("SELECT group_by, group_wait, repeat_seconds FROM channel")).one()
        assert tuple(channel) == ("none", 0.0, None)
