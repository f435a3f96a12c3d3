"""Reading a request's body: bounded in size before and after decompression."""

from __future__ import annotations

import re
import zlib
from typing import TypeVar

import msgspec
import zstandard
from fastapi import Request

from service.errors import FieldError, InvalidError, ProblemError, TooLargeError
from service.ingest.wire import MAX_TIME

T = TypeVar("T")
JSON_TYPES = {"application/json", ""}
ZSTD_WINDOW = 8 * 1024 * 1024
MISSING = re.compile(r"Object missing required field `(.+)`")


async def read_body(request: Request, limit: int) -> bytes:
    """The decompressed body.

    Raises:
        TooLargeError: more than `limit` bytes, as sent or decompressed; found out before they are held.
        ProblemError: 415 for a content type or encoding we do not speak, 400 for one that does not decompress.
    """
    media_type = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if media_type not in JSON_TYPES:
        raise ProblemError(f"Send application/json, not {media_type}.", status=415, title="Unsupported media type")
    declared = request.headers.get("content-length", "")
    if declared.isdigit() and int(declared) > limit:
        raise _too_large(limit)
    received = bytearray()
    async for part in request.stream():
        received += part
        if len(received) > limit:
            raise _too_large(limit)
    encoding = request.headers.get("content-encoding", "").strip().lower()
    return bytes(received) if encoding in ("", "identity") else _decompress(bytes(received), encoding, limit)


def _too_large(limit: int) -> TooLargeError:
    detail = f"The body is larger than {limit:,} bytes (after decompression). Send fewer steps at once."
    return TooLargeError(detail, errors=[FieldError("body", f"larger than {limit} bytes")])


def _decompress(data: bytes, encoding: str, limit: int) -> bytes:
    try:
        if encoding == "gzip":
            gzip = zlib.decompressobj(wbits=31)
            plain = gzip.decompress(data, limit + 1)
            if len(plain) <= limit and (not gzip.eof or gzip.unused_data):
                raise zlib.error("it is cut short, or followed by something else")
        elif encoding == "zstd":
            zstd = zstandard.ZstdDecompressor(max_window_size=ZSTD_WINDOW)
            with zstd.stream_reader(data) as reader:  # a frame cut short gives less: then the JSON does not end
                plain = reader.read(limit + 1)
        else:
            raise ProblemError(
                f"Content-Encoding {encoding!r} is not supported: use gzip or zstd.",
                status=415,
                title="Unsupported media type",
            )
    except (zlib.error, zstandard.ZstdError) as error:
        raise ProblemError(
            f"The body is no {encoding}: {error}", errors=[FieldError("body", f"is no {encoding}")]
        ) from error
    if len(plain) > limit:
        raise _too_large(limit)
    return plain


def _where_and_what(said: str) -> tuple[str, str]:
    """(field, what is wrong with it) of what msgspec says, such as `Expected `int` - at `$.steps[1]``."""
    message, _, path = said.partition(" - at `$")
    field = path.rstrip("`").lstrip(".")
    missing = MISSING.fullmatch(message)
    if missing is not None:
        field = f"{field}.{missing[1]}".lstrip(".")
        return field, "is missing"
    if message == "Number out of range":
        message = 'the number is larger than a 64-bit float holds; a value that is infinite is the string "Infinity"'
    if message.endswith(f"<= {MAX_TIME}"):
        message = f"expected a time in Unix seconds, at most {MAX_TIME:.0f} (the year 9999)"
    return field or "body", message


def decode_json(body: bytes, decoder: msgspec.json.Decoder[T]) -> T:
    """The body as its type.

    Raises:
        ProblemError: 400, it is no JSON.
        InvalidError: 422, a field is missing or of another type.
    """
    try:
        return decoder.decode(body)
    except msgspec.ValidationError as error:
        field, message = _where_and_what(str(error))
        raise InvalidError(f"{field}: {message}", errors=[FieldError(field, message)]) from error
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise ProblemError(f"The body is no JSON: {error}", errors=[FieldError("body", str(error))]) from error
    except RecursionError as error:
        raise ProblemError(
            "The body is nested too deeply.", errors=[FieldError("body", "nested too deeply")]
        ) from error
