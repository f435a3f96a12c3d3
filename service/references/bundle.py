"""Loads a reference bundle and checks it: a published run as files (docs/commands.md, `reference`)."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import Any

from pydantic import ValidationError

from service.references.archive import bundle_files, digest
from service.references.content import content_digest
from service.references.data_order import ExpectedRows, read_expected, read_orders
from service.references.description import Description, Silent
from service.references.series_file import BundleError, Curves, read_series, read_table

LOGGED_NOTHING = "logged nothing"  # what segments.csv notes of a launch without points


@dataclass(frozen=True, slots=True)
class Launch:
    """One start of the published run. `launched` is in unix seconds, None where it is not known."""

    segment: str
    launched: float | None
    note: str


@dataclass(frozen=True, slots=True)
class StageSeries:
    """The curves of one stage, of the reference itself (`sibling` "") or of one healthy rerun.

    `launches` holds every segment that has points, the earliest first; where one launch time is not known, none is,
    and the order of the file stands for it.
    """

    stage: str
    sibling: str
    launches: list[Launch]
    curves: Curves


@dataclass(frozen=True, slots=True)
class Bundle:
    """A checked bundle: what it says, the digest of that, its series, the digest of its files as they are, and the rows
    that a stage is expected to be read with."""

    description: Description
    digest: str
    series: list[StageSeries]
    files_digest: str
    rows: list[ExpectedRows] = field(default_factory=list[ExpectedRows])

    def to_json(self) -> dict[str, Any]:
        """What is kept of reference.toml, schedule.toml, order.json and launches without points, in JSON types."""
        return self.description.model_dump(mode="json")


def load_bundle(path: Path) -> Bundle:
    """Read and check a bundle: a folder, or the same zipped as `.pacenote`.

    Raises:
        BundleError: one line with the file and field or line that is wrong.
    """
    files = bundle_files(path)
    content = _toml(files, "reference.toml", path)
    if "silent" in content:
        raise BundleError("reference.toml: silent: launches that logged nothing stand in segments.csv")
    if "data_order" in content:
        raise BundleError("reference.toml: data_order: how the order is computed stands in order.json")
    if "order.json" in files:
        content["data_order"] = read_orders("order.json", files["order.json"])
    if "schedule.toml" in files:
        content["schedule"] = _toml(files, "schedule.toml", path).get("pieces", [])
    description = _described(content)
    launches = _launches(files, description)
    series = [
        _stage_series(files, stage.series, stage.name, "", launches.get(stage.name))
        for stage in description.stages
        if stage.series is not None
    ]
    for name in sorted(files):
        if name.startswith("siblings/"):
            stage, sibling = _sibling_of(name, description)
            series.append(_stage_series(files, name, stage, sibling, None))
    if not series:
        raise BundleError("reference.toml: no stage names a series file")
    description = description.model_copy(update={"silent": _silent(launches, series)})
    rows = _expected(files, series)
    return Bundle(description, content_digest(description, series, rows), series, digest(files), rows)


def _toml(files: dict[str, bytes], name: str, path: Path) -> dict[str, Any]:
    if name not in files:
        raise BundleError(f"{path}: {name} is missing")
    try:
        return tomllib.loads(files[name].decode("utf-8"))
    except UnicodeDecodeError as error:
        raise BundleError(f"{name}: not UTF-8 text (byte {error.start})") from error
    except tomllib.TOMLDecodeError as error:
        raise BundleError(f"{name}: {error}") from error


def _described(content: dict[str, Any]) -> Description:
    try:
        return Description.model_validate(content)
    except ValidationError as error:
        first = error.errors()[0]
        place = ""
        for part in first["loc"]:
            place += f"[{part}]" if isinstance(part, int) else f".{part}" if place else str(part)
        file = {"schedule": "schedule.toml", "data_order": "order.json"}.get(str(first["loc"][:1] and first["loc"][0]))
        file = file or "reference.toml"
        message = first["msg"].removeprefix("Value error, ")
        raise BundleError(f"{file}: {place}: {message}" if place else f"{file}: {message}") from error


def _expected(files: dict[str, bytes], series: list[StageSeries]) -> list[ExpectedRows]:
    """`rows.bin`, and `rows/<any name>.bin` where several stages have one; which stage it is of stands in the file."""
    found: dict[str, ExpectedRows] = {}
    stages = [one.stage for one in series if not one.sibling]
    for name in sorted(files):
        if name != "rows.bin" and not (name.startswith("rows/") and name.endswith(".bin")):
            continue
        expected = read_expected(name, files[name])
        if expected.stage not in stages:
            raise BundleError(f"{name}: is of stage {expected.stage!r}; stages with a series are {', '.join(stages)}")
        if expected.stage in found:
            raise BundleError(f"{name}: stage {expected.stage} has expected rows already")
        found[expected.stage] = expected
    return list(found.values())


def _launches(files: dict[str, bytes], description: Description) -> dict[str, list[Launch]]:
    if "segments.csv" not in files:
        return {}
    launches: dict[str, list[Launch]] = {}
    for where, row in read_table("segments.csv", files["segments.csv"], ("stage", "segment", "launched")):
        if description.stage(row["stage"]) is None:
            raise BundleError(f"{where}: there is no stage {row['stage']!r}")
        own = launches.setdefault(row["stage"], [])
        if any(launch.segment == row["segment"] for launch in own):
            raise BundleError(f"{where}: segment {row['segment']!r} is given twice")
        own.append(Launch(row["segment"], unix_seconds(where, row["launched"]), row.get("note", "")))
    for stage, own in launches.items():
        known = sum(launch.launched is not None for launch in own)
        if known not in (0, len(own)):
            raise BundleError(
                f"segments.csv: {stage} has {known} launch times for {len(own)} segments; give all or none"
            )
    return launches


def _silent(launches: dict[str, list[Launch]], series: list[StageSeries]) -> list[Silent]:
    """Launches without points."""
    spoke = {(one.stage, launch.segment) for one in series if not one.sibling for launch in one.launches}
    found: list[Silent] = []
    for stage, own in launches.items():
        for place, launch in enumerate(sorted(own, key=lambda one: one.launched or 0.0)):
            if (stage, launch.segment) not in spoke:
                note = launch.note.removesuffix(LOGGED_NOTHING).rstrip("; ")
                found.append(
                    Silent(stage=stage, segment=launch.segment, launched=launch.launched, note=note, place=place)
                )
    return found


def unix_seconds(where: str, text: str) -> float | None:
    """Unix seconds of a time such as 2025-07-21T06:03:59Z, None for an empty text.

    Raises:
        BundleError: it is no time, or names no zone; `where` is the place in words.
    """
    if not text:
        return None
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise BundleError(f"{where}: launched {text!r} is no time such as 2025-07-21T06:03:59Z") from None
    if time.tzinfo is None:
        raise BundleError(f"{where}: launched {text!r} lacks a time zone; end it with Z for UTC")
    return time.timestamp()


def _stage_series(
    files: dict[str, bytes], name: str, stage: str, sibling: str, launches: list[Launch] | None
) -> StageSeries:
    if name not in files:
        raise BundleError(f"reference.toml: stage {stage}: the file {name!r} is missing")
    if PurePosixPath(name).suffix not in (".csv", ".parquet"):
        raise BundleError(f"{name}: a series is a .csv or a .parquet file")
    curves = read_series(name, files[name])
    if launches is None:
        launches = [Launch(segment, None, "") for segment in curves]
    known = {launch.segment for launch in launches}
    unknown = [segment for segment in curves if segment not in known]
    if unknown:
        raise BundleError(f"{name}: segment {unknown[0]!r} is not in segments.csv")
    own = [launch for launch in launches if launch.segment in curves]
    return StageSeries(stage, sibling, sorted(own, key=lambda launch: launch.launched or 0.0), curves)


def _sibling_of(name: str, description: Description) -> tuple[str, str]:
    """`siblings/<name>.csv` where one stage has series, `siblings/<stage>/<name>.csv` where several have."""
    parts = PurePosixPath(name).with_suffix("").parts[1:]
    stages = [stage.name for stage in description.stages if stage.series is not None]
    if len(parts) == 1 and len(stages) == 1:
        return stages[0], parts[0]
    if len(parts) == 2 and parts[0] in stages:
        return parts[0], parts[1]
    raise BundleError(f"{name}: name it siblings/<stage>/<name>.csv, with a stage of {', '.join(stages)}")


__all__ = ["LOGGED_NOTHING", "Bundle", "BundleError", "Launch", "StageSeries", "load_bundle", "unix_seconds"]
