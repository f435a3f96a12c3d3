"""`pacenote follow`: feeds a run from a log that grows, for a run that has no hook."""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Annotated
from uuid import uuid5

import typer

from service.cli.output import fail, warn
from service.cli.replay import chosen_names

if TYPE_CHECKING:
    from typing import Any

    from service.importers.follow_source import FollowSource

EXAMPLE = "Example: pacenote follow logs/train.jsonl --reference olmo3-7b --map 'loss=train/ce_loss'"


def follow(
    source: Annotated[str, typer.Argument(help="A log file, a TensorBoard folder, or wandb:ENTITY/PROJECT/RUN.")],
    reference: Annotated[str, typer.Option(help="Reference to compare with.")],
    project: Annotated[str | None, typer.Option(help="By default the reference's name.")] = None,
    run: Annotated[str | None, typer.Option(help="Name of the run; by default the log's.")] = None,
    stage: Annotated[str | None, typer.Option(help="By default the reference's first stage.")] = None,
    tokens_per_step: Annotated[int | None, typer.Option(help="By default that of the reference's stage.")] = None,
    mapping: Annotated[
        list[str] | None, typer.Option("--map", help="NAME=METRIC: what a name in the log means. May be repeated.")
    ] = None,
    format_name: Annotated[str | None, typer.Option("--format", help="By default found by content.")] = None,
    gradient_accumulation: Annotated[
        int, typer.Option(min=1, help="Microbatches of one step: MaxText sums its auxiliary losses over them.")
    ] = 1,
    from_start: Annotated[
        bool, typer.Option("--from-start", help="Read the log from its beginning again, as a new start of the trainer.")
    ] = False,
    resume: Annotated[bool, typer.Option("--resume", help="Only go on; refuse to begin.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Send what is there now, then end; the next call goes on from it.")
    ] = False,
    until_idle: Annotated[
        float | None, typer.Option(help="End when nothing new came for so many seconds and all is judged.")
    ] = None,
    url: Annotated[str, typer.Option(envvar="PACENOTE_URL", help="The service.")] = "http://127.0.0.1:8350",
    wandb_url: Annotated[str, typer.Option(envvar="WANDB_BASE_URL", help="The W&B host.")] = "https://api.wandb.ai",
) -> None:
    """Feed a run from a growing log, and print what is found about it as it is found.

    Goes on where it was, however it ended; Ctrl-C ends it. With --until-idle: exit 1 if a judgement says it is not the
    published run.
    """
    from service.cli.following import Follower, forgotten, lock, open_state, state_folder
    from service.importers.follow import Feed, StateFile
    from service.importers.follow_service import FollowService
    from service.importers.rows import LogError
    from service.ingest.segments import run_uuid

    if from_start and resume:
        fail("--from-start and --resume exclude each other.")
    if once and until_idle is not None:
        fail("--once and --until-idle exclude each other.")
    token, headers = os.environ.get("PACENOTE_TOKEN", ""), os.environ.get("PACENOTE_HEADERS", "")
    chosen = chosen_names(mapping or [])
    service, locked, follower = None, None, None
    try:
        log, default_name = _source(
            source, format_name, wandb_url, lasting=not once and until_idle is None, waits=not once
        )
        name = run or default_name
        folder = state_folder()
        probe = FollowService(url, token, headers, "", folder / "unused", warn)
        try:
            stage, reference_tokens = probe.stage(reference, stage)
        finally:
            probe.close()
        run_id = run_uuid(project or reference, name, stage)
        key = uuid5(run_id, url.rstrip("/"))
        locked = lock(folder, key, name)
        service = FollowService(url, token, headers, str(run_id), folder / f"{key}.rejected.jsonl", warn)
        file = StateFile(folder / f"{key}.json") if not from_start else forgotten(folder / f"{key}.json")
        state = open_state(file, log, name, resume)

        def describe(start_step: int) -> dict[str, Any]:
            return _body(
                name, project or reference, reference, stage, start_step, tokens_per_step or reference_tokens, log
            )

        typer.echo(f"{'Going on with' if state.cursor else 'Following'} {source} as {url.rstrip('/')}/runs/{run_id}")
        follower = Follower(log, Feed(state, describe, chosen, gradient_accumulation), file, service)
        follower.run(until_idle, once=once)
    except LogError as error:
        fail(str(error))
    except ValueError as error:  # an address or headers that are none
        fail(str(error))
    except KeyboardInterrupt:
        if follower is not None:
            follower.say_sent()
        typer.echo("Stopped; the same command goes on from here.")
    finally:
        if service is not None:
            service.close()
        if locked is not None:
            locked.close()


def _source(
    source: str, format_name: str | None, wandb_url: str, *, lasting: bool, waits: bool
) -> tuple[FollowSource, str]:
    """The source, and the name of a run that it suggests. `lasting`: it is followed until someone ends it."""
    from service.importers import tensorboard, wandb_runs
    from service.importers.follow_events import EventsSource
    from service.importers.follow_files import FileSource
    from service.importers.follow_wandb import WandbSource
    from service.importers.remote import is_address, local_path
    from service.importers.wandb_api import PATIENCE_SECONDS, WandbApi

    if is_address(source):
        found = wandb_runs.parse(source)
        if found is None or not found.run:
            fail(f"{source}: write wandb:ENTITY/PROJECT/RUN, with the run's id; nothing else is followed by address.")
        url = wandb_url if source.startswith("wandb:") else found.url
        patience = math.inf if lasting else PATIENCE_SECONDS  # a night's outage of W&B's ends nothing
        api = WandbApi(found.entity, found.project, url=url, patience=patience, say=warn)
        return WandbSource(api, found.run), found.run
    path = local_path(source)
    if path.exists() and not (path.is_file() or path.is_dir()):
        fail(f"{path}: a pipe or a device, which cannot be read again after a restart; write it into a file.")
    if path.is_dir() or "tfevents" in path.name or format_name == tensorboard.NAME:
        if path.is_dir() and not any(path.rglob("*tfevents*")):
            warn(f"{path} holds no event files yet" + ("; waiting for them" if waits else ""))
        return EventsSource(path), path.resolve().name.split(".")[0]
    if not path.exists():
        if not path.parent.is_dir():
            fail(f"{path}: there is no folder {path.parent}.")
        warn(f"{path} is not there yet" + ("; waiting for it" if waits else ""))
    return FileSource(path, format_name), path.name.split(".")[0]


def _body(
    name: str, project: str, reference: str, stage: str, start_step: int, tokens_per_step: int, log: FollowSource
) -> dict[str, Any]:
    from trainer_hooks.segment import Place, describe

    body = describe(
        name,
        project=project,
        reference=reference,
        stage=stage,
        kind="trainer",
        start_step=start_step,
        start_tokens=None,
        tokens_per_step=tokens_per_step,
        forked_from=None,
        config={"followed": log.name, "format": log.format},
        data=None,
        sample_rows=1024,
        place=Place(0, 1),
    )
    # What is known of this process says nothing about the trainer's.
    return body | {"topology": {}, "versions": {"trainer_hooks": body["versions"]["trainer_hooks"]}}
