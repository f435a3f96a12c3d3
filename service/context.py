"""What every endpoint and worker of one process shares."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from fastapi import Depends, Request
from sqlalchemy import Engine

from service.broker import Broker
from service.ingest.committer import Committer
from service.settings import Settings


@dataclass(frozen=True, slots=True)
class Context:
    """The parts of one service process."""

    settings: Settings
    engine: Engine
    committer: Committer
    broker: Broker


async def get_context(request: Request) -> Context:  # async: else every request waits for a thread
    """The context of the application that answers this request."""
    context: Context = request.app.state.context
    return context


ContextDep = Annotated[Context, Depends(get_context)]
