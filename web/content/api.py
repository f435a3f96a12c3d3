"""The page of the HTTP API, read from the application's own OpenAPI document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Schema = Mapping[str, Any]
LIMITS = {
    "minimum": "≥ {}", "maximum": "≤ {}", "exclusiveMinimum": "> {}", "exclusiveMaximum": "< {}",
    "minLength": "at least {} characters", "maxLength": "at most {} characters",
    "minItems": "at least {} items", "maxItems": "at most {} items", "pattern": "like {}",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Field:
    """One parameter, or one entry of a body. `kind` is its type in words, `note` limits, default and meaning."""

    name: str
    where: str
    kind: str
    required: bool
    note: str


@dataclass(frozen=True, slots=True)
class Operation:
    """One method of one address, with the fields of its query and body; `answers` are the media types of success."""

    method: str
    path: str
    text: str
    fields: Sequence[Field]
    answers: Sequence[str]


def operations(document: Schema) -> dict[str, list[Operation]]:
    """Every operation of an OpenAPI 3.1 document, by its first tag, in the document's own order."""
    schemas: Schema = document.get("components", {}).get("schemas", {})
    found: dict[str, list[Operation]] = {}
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            group = (operation.get("tags") or ["other"])[0]
            found.setdefault(group, []).append(_operation(method.upper(), path, operation, schemas))
    return found


def _operation(method: str, path: str, operation: Schema, schemas: Schema) -> Operation:
    fields = [
        Field(p["name"], p["in"], kind_of(p["schema"]), p.get("required", False), _note(p["schema"], p))
        for p in operation.get("parameters", ())
    ]
    for content in operation.get("requestBody", {}).get("content", {}).values():
        fields += _body(content.get("schema", {}), schemas)
        break  # further media types carry the same body
    answers = {
        media
        for status, answer in operation["responses"].items()
        if status.startswith("2")
        for media in answer.get("content", {})
    }
    return Operation(
        method, path, operation.get("description") or operation.get("summary", ""), fields, sorted(answers)
    )


def _body(schema: Schema, schemas: Schema) -> Iterator[Field]:
    named = {**schemas, **schema.get("$defs", {})}
    while "$ref" in schema:
        schema = named[schema["$ref"].rsplit("/", 1)[-1]]
    for name, entry in schema.get("properties", {}).items():
        yield Field(name, "body", kind_of(entry), name in schema.get("required", ()), _note(entry, entry))


def kind_of(schema: Schema | bool) -> str:
    """A schema's type in words: `integer`, `array of string`, `string or null`, the name of another schema."""
    if isinstance(schema, bool):
        return "any"
    if "$ref" in schema:
        return schema["$ref"].rsplit("/", 1)[-1]
    if "enum" in schema:
        return " | ".join(str(value) for value in schema["enum"])
    if "const" in schema:
        return str(schema["const"])
    for key in ("anyOf", "oneOf", "allOf"):
        if key in schema:
            return " or ".join(dict.fromkeys(kind_of(entry) for entry in schema[key]))
    kind = schema.get("type", "any")
    if isinstance(kind, list):
        return " or ".join(map(str, kind))  # pyright: ignore[reportUnknownArgumentType, reportUnknownVariableType]
    if kind == "array":
        return f"array of {kind_of(schema.get('items', {}))}"
    return schema.get("format", kind)


def _note(schema: Schema, described: Schema) -> str:
    parts = [words.format(schema[key]) for key, words in LIMITS.items() if key in schema]
    if schema.get("default") is not None:
        parts.append(f"by default {schema['default']}")
    return "; ".join([*([described["description"]] if described.get("description") else []), *parts])
