"""Pictures of alerts: drawn when a message goes out, or fetched by a chat at an address that is signed and expires.

A chat's servers carry no token, so the address itself must say that it was given out: it holds the alert, the end of
its life, and a signature over both by the key that seals channels' secrets.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from uuid import UUID

from fastapi import APIRouter, Response
from sqlalchemy import Engine
from sqlalchemy.orm import Session

from service.alerts.plot import Curve, draw
from service.alerts.repository import AlertRepository, AlertRow
from service.channels.vault import Vault, VaultError, vault_of
from service.context import ContextDep
from service.database.engine import reading
from service.detect.onset import joint_onset
from service.errors import NotFoundError
from service.judgements.gap import read_gap
from service.judgements.view import TRAIN, UnknownReferenceError

log = logging.getLogger(__name__)

LIFE = 7 * 86400.0  # seconds that an address is good for
POINTS = 200

router = APIRouter(tags=["alerts"])


class Pictures:
    """Makes the pictures of messages. `links`: whether chats can reach this service to fetch them."""

    def __init__(self, engine: Engine, vault: Callable[[], Vault], base_url: str, *, links: bool) -> None:
        self._engine = engine
        self._vault = vault
        self._base_url = base_url
        self._links = links

    def png(self, message: Mapping[str, Any]) -> bytes | None:
        """The picture of a message's alert; None where there is nothing to show. Never raises: a message without its
        picture is still a message."""
        try:
            return picture_of(self._engine, UUID(message["alert"]["id"]))
        except Exception:
            log.exception("no picture of alert %s", message["alert"]["id"])
            return None

    def address(self, message: Mapping[str, Any], now: float) -> str | None:
        """Where the picture of a message's alert can be fetched; None where it cannot, or there is nothing to show."""
        if not self._links or self.png(message) is None:
            return None
        return f"{self._base_url}/pictures/{_signed(self._vault(), message['alert']['id'], now + LIFE)}.png"


@router.get("/pictures/{alert_id}/{expires}/{signature}.png", operation_id="read_picture", response_class=Response)
def read_picture(context: ContextDep, alert_id: UUID, expires: int, signature: str) -> Response:
    """The gap of an alert's run, as PNG. The address comes with a message, needs no token, and expires."""
    try:
        good = vault_of(context.settings).verifies(_subject(str(alert_id), expires), signature)
    except VaultError:
        good = False
    picture = picture_of(context.engine, alert_id) if good and time.time() < expires else None
    if picture is None:
        raise NotFoundError("There is no such picture, or its address has expired. The alert's page shows it.")
    headers = {"Cache-Control": "private, max-age=300", "X-Robots-Tag": "noindex"}
    return Response(picture, media_type="image/png", headers=headers)


def picture_of(engine: Engine, alert: UUID) -> bytes | None:
    """The picture of an alert; None where there is no such alert, or no gap to show."""
    with reading(engine) as session:
        row = AlertRepository(session).by_uuid(alert)
        curve = None if row is None else _curve(session, row)
    return None if curve is None else draw(curve)


def _curve(session: Session, row: AlertRow) -> Curve | None:
    try:
        gap, _ = read_gap(session, row.run, TRAIN, POINTS)
    except UnknownReferenceError:
        return None
    if len(gap.gap) < 2:
        return None
    began = joint_onset(row.alert.judgements.values())
    return Curve(
        "Train loss, run minus reference",
        (gap.first_step + gap.last_step) / 2.0,
        gap.gap,
        gap.low,
        gap.high,
        tolerance=gap.tolerance.value if gap.tolerance else None,
        since=None if began is None else (float(began[0][0]), float(began[0][1])),
    )


def _signed(vault: Vault, alert: str, until: float) -> str:
    expires = int(until)
    return f"{alert}/{expires}/{vault.sign(_subject(alert, expires))}"


def _subject(alert: str, expires: int) -> str:
    return f"picture/{alert}/{expires}"
