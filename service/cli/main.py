"""The `pacenote` command: puts the commands together and turns wrong use into one line."""

from __future__ import annotations

import sys
from importlib.metadata import version
from typing import Annotated, Any

import typer

from service.cli import (
    alert,
    audit,
    backtest,
    channel,
    check,
    database,
    deviation,
    export,
    follow,
    import_,
    lab,
    reference,
    reference_build,
    reference_pull,
    reference_rows,
    replay,
    report,
    rule,
    serve,
    sync,
    worker,
)
from service.cli.demo import demo
from service.cli.output import INTERRUPTED, REFUSED

app = typer.Typer(
    name="pacenote",
    help="Says whether a training run is still the published run it reproduces, since when not, and why.",
    epilog="Example: pacenote demo",
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _say_version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"pacenote {version('pacenote')}")
        raise typer.Exit


@app.callback()
def options(
    _version: Annotated[
        bool, typer.Option("--version", help="Say which version this is.", callback=_say_version, is_eager=True)
    ] = False,
) -> None:
    """What goes before a command."""


def _group(name: str, text: str, example: str) -> typer.Typer:
    group = typer.Typer(name=name, help=text, epilog=example, rich_markup_mode=None)
    app.add_typer(group)
    return group


app.command("demo")(demo)  # its help ends with an example
app.command("serve", epilog=serve.EXAMPLE)(serve.serve)
app.command("worker", epilog=worker.EXAMPLE)(worker.worker)
app.command("replay", epilog=replay.EXAMPLE)(replay.replay)
app.command("import", epilog=import_.EXAMPLE)(import_.import_)
app.command("export", epilog=export.EXAMPLE)(export.export)
app.command("follow", epilog=follow.EXAMPLE)(follow.follow)
app.command("backtest", epilog=backtest.EXAMPLE)(backtest.backtest)
app.command("check", epilog=check.EXAMPLE)(check.check)
app.command("report", epilog=report.EXAMPLE)(report.report)
app.command("sync", epilog=sync.EXAMPLE)(sync.sync)
app.command("audit", epilog=audit.EXAMPLE)(audit.audit)

_references = _group("reference", "Published runs that are installed.", reference.EXAMPLE_LIST)
_references.command("list", epilog=reference.EXAMPLE_LIST)(reference.show_list)
_references.command("show", epilog=reference.EXAMPLE_SHOW)(reference.show)
_references.command("pull", epilog=reference_pull.EXAMPLE)(reference_pull.pull)
_references.command("build", epilog=reference_build.EXAMPLE_BUILD)(reference_build.build)
_references.command("rows", epilog=reference_rows.EXAMPLE)(reference_rows.rows)
_references.command("export", epilog=reference_build.EXAMPLE_EXPORT)(reference_build.export)
_references.command("install", epilog=reference_build.EXAMPLE_INSTALL)(reference_build.install)

_channels = _group("channel", "Where alerts are sent.", channel.EXAMPLE_LIST)
_channels.command("add", epilog=channel.EXAMPLE_ADD)(channel.add)
_channels.command("list", epilog=channel.EXAMPLE_LIST)(channel.show_list)
_channels.command("test", epilog=channel.EXAMPLE_TEST)(channel.send_test)
_channels.command("switch", epilog=channel.EXAMPLE_SWITCH)(channel.switch)
_channels.command("deliveries", epilog=channel.EXAMPLE_DELIVERIES)(channel.deliveries)
_channels.command("replay", epilog=channel.EXAMPLE_REPLAY)(channel.replay)
_channels.command("rotate", epilog=channel.EXAMPLE_ROTATE)(channel.rotate)
_channels.command("remove", epilog=channel.EXAMPLE_REMOVE)(channel.remove)

_alerts = _group("alert", "What is wrong now, and what people do about it.", alert.EXAMPLE_LIST)
_alerts.command("list", epilog=alert.EXAMPLE_LIST)(alert.show_list)
_alerts.command("show", epilog=alert.EXAMPLE_SHOW)(alert.show)
_alerts.command("ack", epilog=alert.EXAMPLE_ACK)(alert.ack)
_alerts.command("mute", epilog=alert.EXAMPLE_MUTE)(alert.mute)
_alerts.command("unmute", epilog=alert.EXAMPLE_UNMUTE)(alert.unmute)
_alerts.command("resolve", epilog=alert.EXAMPLE_RESOLVE)(alert.resolve)
_alerts.command("assign", epilog=alert.EXAMPLE_ASSIGN)(alert.assign)
_alerts.command("comment", epilog=alert.EXAMPLE_COMMENT)(alert.comment)

_rules = _group("rule", "How runs are judged: tolerances, minimum evidence, mutes.", rule.EXAMPLE_LIST)
_rules.command("list", epilog=rule.EXAMPLE_LIST)(rule.show_list)
_rules.command("show", epilog=rule.EXAMPLE_SHOW)(rule.show)
_rules.command("set", epilog=rule.EXAMPLE_SET)(rule.set_)
_rules.command("reset", epilog=rule.EXAMPLE_RESET)(rule.reset)
_rules.command("history", epilog=rule.EXAMPLE_HISTORY)(rule.history)
_rules.command("try", epilog=rule.EXAMPLE_TRY)(rule.try_)

_deviations = _group("deviation", "Known differences of a run from its reference.", deviation.EXAMPLE_LIST)
_deviations.command("add", epilog=deviation.EXAMPLE_ADD)(deviation.add)
_deviations.command("try", epilog=deviation.EXAMPLE_TRY)(deviation.try_)
_deviations.command("list", epilog=deviation.EXAMPLE_LIST)(deviation.show_list)
_deviations.command("end", epilog=deviation.EXAMPLE_END)(deviation.end)

_lab = _group("lab", "The small reproduction that comes with the program.", lab.EXAMPLE_RECORD)
_lab.command("record", epilog=lab.EXAMPLE_RECORD)(lab.record)

_database = _group("database", "The schema's revision.", database.EXAMPLE_CURRENT)
_database.command("upgrade", epilog=database.EXAMPLE_UPGRADE)(database.upgrade)
_database.command("current", epilog=database.EXAMPLE_CURRENT)(database.current)


def main() -> int:
    """Run the command line; returns the exit status."""
    try:
        status: Any = app(sys.argv[1:] or ["--help"], standalone_mode=False)
    except (typer.Abort, KeyboardInterrupt):
        return INTERRUPTED
    except OSError as error:
        typer.echo(f"pacenote: {error.strerror or error}{f': {error.filename}' if error.filename else ''}", err=True)
        return REFUSED
    except Exception as error:
        describe = getattr(error, "format_message", None)  # what every wrong use has
        if describe is None:
            raise
        typer.echo(f"pacenote: {' '.join(describe().split()).rstrip('.')} (see --help)", err=True)
        return REFUSED
    return status if isinstance(status, int) else 0


if __name__ == "__main__":
    sys.exit(main())
