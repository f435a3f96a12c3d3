"""Assembles the application: every noun's endpoints, the pages, and the background tasks."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from importlib.metadata import version

from fastapi import Depends, FastAPI

from service import errors
from service.alerts.endpoints import router as alerts
from service.alerts.pictures import router as pictures
from service.auth.browsers import BrowserGuard
from service.auth.token import require_token
from service.broker import Broker
from service.channels.endpoints import router as channels
from service.context import Context
from service.database.engine import open_engine
from service.deviations.endpoints import router as deviations
from service.events.elsewhere import Elsewhere
from service.events.endpoints import router as events
from service.fingerprints.endpoints import router as fingerprints
from service.hardware.endpoints import router as hardware
from service.head import HeadAsGet
from service.health.endpoints import router as health
from service.health.telemetry import install as install_telemetry
from service.ingest.committer import Committer
from service.ingest.endpoints import router as ingest
from service.judgements.endpoints import router as judgements
from service.notes.endpoints import router as notes
from service.recovery.endpoints import router as recovery
from service.references.endpoints import router as references
from service.reports.endpoints import router as reports
from service.rules.endpoints import router as rules
from service.rules.previewing import router as previews
from service.runs.endpoints import router as runs
from service.series.endpoints import router as series
from service.settings import Settings
from service.sub_path import SubPath
from service.worker.loop import Worker
from web.pages import install as install_pages

NOUNS = (
    runs, notes, ingest, series, fingerprints, references, judgements, previews, rules, deviations, recovery, alerts,
    channels, events, reports, hardware,
)  # fmt: skip

SMALL_BODY = 64 * 1024  # bytes of a request that a person or a script writes


def create_app(settings: Settings) -> FastAPI:
    """The service. The database's schema must be there already (`service.database.migrate.ensure_schema`)."""
    engine = open_engine(settings.database_url)
    broker = Broker()
    committer = Committer(engine, broker)
    context = Context(settings, engine, committer, broker)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncGenerator[None]:
        committer.start()
        worker = Worker(context) if settings.worker else None
        if worker:
            worker.start()
        elsewhere = Elsewhere(engine, broker)
        elsewhere.start()
        try:
            yield
        finally:
            elsewhere.stop()
            if worker:
                worker.stop()
            committer.stop()
            engine.dispose()

    app = FastAPI(
        title="Pacenote",
        version=version("pacenote"),
        description="Is this training run still the published run it reproduces, since when not, and why?",
        lifespan=lifespan,
        docs_url=None,  # web has a page of its own
        redoc_url=None,
        openapi_url="/api/openapi.json",
        root_path=settings.root_path,
    )
    app.state.context = context
    errors.install(app)
    app.add_middleware(HeadAsGet)
    app.add_middleware(BrowserGuard, settings=settings)
    install_telemetry(app)
    app.add_middleware(SubPath, root_path=settings.root_path)
    for router in NOUNS:
        limit = None if router is ingest else SMALL_BODY  # ingest has its own: decompressed bytes count there
        app.include_router(router, prefix="/api/v1", dependencies=[Depends(require_token)], max_body_size=limit)
    app.include_router(health)
    app.include_router(pictures)  # its addresses are signed: chats fetch them without a token
    install_pages(app)
    return app
