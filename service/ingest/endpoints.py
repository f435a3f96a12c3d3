"""Where hooks, importers and curl send what a run does."""

from __future__ import annotations

import time
from typing import Any

from fastapi import APIRouter, Request, Response

from service.context import Context, ContextDep
from service.ingest.batches import decode_batch, parse_uuid
from service.ingest.body import read_body
from service.ingest.posts import decode_post, decode_segment
from service.ingest.requests import Accepted, Post, Put
from service.ingest.wire import BatchBody, EventBody, FingerprintBody, FinishBody, ItemsBody, SegmentBody, Sent, schema

router = APIRouter(tags=["ingest"])

_ANSWERS: dict[int | str, dict[str, Any]] = {
    202: {
        "description": "Committed.",
        "content": {
            "application/json": {
                "schema": {
                    "type": "object",
                    "required": ["accepted", "duplicate"],
                    "properties": {
                        "accepted": {"type": "integer"},
                        "duplicate": {"type": "boolean"},
                        "refused": {
                            "type": "array",
                            "description": "Metrics beyond the most that a run may have; all others were stored.",
                            "items": {
                                "type": "object",
                                "properties": {"field": {"type": "string"}, "detail": {"type": "string"}},
                            },
                        },
                    },
                }
            }
        },
    },
    404: {"description": "No such segment: PUT it, then send this again."},
    409: {"description": "The same key was used before with other content."},
    413: {"description": "Too large."},
    422: {"description": "A field is wrong; `errors` names it."},
}


def _describe(body: type[Sent]) -> dict[str, Any]:
    return {"requestBody": {"required": True, "content": {"application/json": {"schema": schema(body)}}}}


async def _accept(context: Context, request: Post | Put) -> Response:
    accepted: Accepted = await context.committer.submit(request)
    return Response(accepted.to_json(), 202, media_type="application/json")


async def _post(kind: str, segment: str, request: Request, context: Context) -> Response:
    uuid = parse_uuid("segment", segment)
    received_at = time.time()
    body = await read_body(request, context.settings.max_body_bytes)
    return await _accept(context, decode_post(kind, uuid, body, received_at))


@router.put("/segments/{segment}", status_code=202, responses=_ANSWERS, openapi_extra=_describe(SegmentBody))
async def put_segment(segment: str, request: Request, context: ContextDep) -> Response:
    """Announce one start of a trainer, an evaluator or an import. Project and run are created if they are missing."""
    uuid = parse_uuid("segment", segment)
    received_at = time.time()
    body = await read_body(request, context.settings.max_body_bytes)
    return await _accept(context, decode_segment(uuid, body, received_at))


@router.post("/segments/{segment}/batches", status_code=202, responses=_ANSWERS, openapi_extra=_describe(BatchBody))
async def post_batch(segment: str, request: Request, context: ContextDep) -> Response:
    """Metrics in columns, parallel to their steps; null where a metric has no value at a step."""
    uuid = parse_uuid("segment", segment)
    received_at = time.time()
    body = await read_body(request, context.settings.max_body_bytes)
    sent, batch, digest = decode_batch(body, context.settings, received_at)
    post = Post(uuid, sent.process, sent.seq, "batches", digest, received_at, batch.points, batch)
    return await _accept(context, post)


@router.post(
    "/segments/{segment}/fingerprints", status_code=202, responses=_ANSWERS, openapi_extra=_describe(FingerprintBody)
)
async def post_fingerprints(segment: str, request: Request, context: ContextDep) -> Response:
    """Sampled hashes of the rows that one host read."""
    return await _post("fingerprints", segment, request, context)


@router.post("/segments/{segment}/items", status_code=202, responses=_ANSWERS, openapi_extra=_describe(ItemsBody))
async def post_items(segment: str, request: Request, context: ContextDep) -> Response:
    """Per-item results of one task at one checkpoint."""
    return await _post("items", segment, request, context)


@router.post("/segments/{segment}/events", status_code=202, responses=_ANSWERS, openapi_extra=_describe(EventBody))
async def post_event(segment: str, request: Request, context: ContextDep) -> Response:
    """A checkpoint, a change of configuration, code, data or hardware, or a note."""
    return await _post("events", segment, request, context)


@router.post("/segments/{segment}/finish", status_code=202, responses=_ANSWERS, openapi_extra=_describe(FinishBody))
async def post_finish(segment: str, request: Request, context: ContextDep) -> Response:
    """The process ended as it should."""
    return await _post("finish", segment, request, context)
