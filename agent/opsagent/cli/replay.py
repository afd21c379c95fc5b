"""`opsagent replay RUN`: the loop again over what was recorded, without hosts and without a model."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, cast

import click

from opsagent.cli.candidates import runs

if TYPE_CHECKING:
    from opsagent.protocols import Model
    from opsagent.replay.recording import Recording
    from opsagent.replay.run import Mode, Outcome

BANNERS = {
    "strict": "",
    "sequential": "sequential: prompts and arguments may differ; only the order of the tools was compared",
    "loose": "loose: each call took the most similar recorded result; this proves only that the loop gets through",
}


@click.command("replay", short_help="Run a transcript again without hosts or model.")
@click.argument("run", shell_complete=runs)
@click.option(
    "--mode",
    type=click.Choice(["strict", "sequential", "loose"]),
    default="strict",
    show_default=True,
    help="How much must be the same: all, the order of the tools, or nothing.",
)
@click.option("--live-model", default="", metavar="NAME", help="Another model decides; results stay recorded (loose).")
@click.option("--sim", is_flag=True, help="Recorded decisions on the lab's hosts, instead of recorded results.")
@click.option("--out", default="", metavar="DIR", help="With --sim: where the new run goes (default: a new run).")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object.")
def command(run: str, mode: str, live_model: str, sim: bool, out: str, as_json: bool) -> int:
    """Replay RUN (an id, a prefix of one, or a path): every request, call, check and event is made again and compared.

    Nothing is sent anywhere and no host is touched, except the model's requests with --live-model. It proves that this
    version of the program decides from the recorded results what was decided then; it proves nothing about hosts.

    \b
    Examples:
      opsagent replay transcripts/story
      opsagent replay 7f3a --mode sequential              # prompts may differ, the order of the tools may not
      opsagent replay transcripts/story-llm --sim         # its decisions on the lab's hosts

    Exit: 0 the same, 9 diverged or damaged, 2 no such run.
    """
    from opsagent.cli import fail
    from opsagent.replay.recording import Recording
    from opsagent.replay.run import replay
    from opsagent_tools.errors import InputError, OpsError

    try:
        if sim and live_model:
            raise InputError(
                "--sim and --live-model do not go together", hint="opsagent run --lab S --llm NAME does that"
            )
        recording = Recording.open(run)
        if sim:
            return _simulate(recording, out, as_json=as_json)
        model = _live(live_model) if live_model else None
        outcome = replay(recording, cast("Mode", "loose" if live_model else mode), model=model)
    except OpsError as error:
        return fail(error, as_json=as_json)
    if as_json:
        click.echo(json.dumps(_json(outcome), indent=1, ensure_ascii=False))
    else:
        _print(outcome, str(recording.folder))
    return 0 if outcome.ok else 9


def _simulate(recording: Recording, out: str, *, as_json: bool) -> int:
    from pathlib import Path

    from opsagent.replay.simulated import simulate

    click.echo("SIMULATED: recorded decisions on the lab's hosts", err=True)
    made = simulate(recording, Path(out) if out else None, notice=lambda text: click.echo(text, err=True))
    if as_json:
        body = {
            "ok": made.ok, "mode": "sim", "simulated": True, "status": made.status, "folder": str(made.folder),
            "recorded_status": made.recorded_status, "divergence": made.parted,
        }  # fmt: skip
        click.echo(json.dumps(body, indent=1, ensure_ascii=False))
    elif made.ok:
        click.echo(f"✔ the same course, status {made.status}: {made.folder}")
    else:
        parted = made.parted["what"] if made.parted else f"status {made.status}, recorded was {made.recorded_status}"
        click.echo(f"✘ {parted}: {made.folder}")
    return 0 if made.ok else 9


def _live(name: str) -> Model:
    from opsagent.models.select import choose, connect
    from opsagent_tools.errors import InputError

    choice = choose(name, os.environ)
    if choice.kind != "openai":
        raise InputError("--live-model needs a model at OPENAI_BASE_URL", hint="plain `opsagent replay RUN` needs none")
    click.echo(choice.notice, err=True)
    return connect(choice)


def _json(outcome: Outcome) -> dict[str, object]:
    parted = outcome.divergence
    return {
        "ok": outcome.ok,
        "mode": outcome.mode,
        "events": outcome.events,
        "recorded": outcome.recorded,
        "status": outcome.status,
        "recorded_status": outcome.recorded_status,
        "incomplete": outcome.incomplete,
        "differences": list(outcome.differences),
        "divergence": None if parted is None else {"what": parted.what, "event": parted.event, "hint": parted.hint},
    }


def _print(outcome: Outcome, folder: str) -> None:
    if BANNERS[outcome.mode]:
        click.echo(BANNERS[outcome.mode], err=True)
    for line in outcome.differences:
        click.echo(f"  differs: {line}")
    if outcome.divergence is not None:
        click.echo(f"✘ {outcome.divergence.what}")
        if outcome.divergence.hint:
            click.echo(f"  {outcome.divergence.hint}")
        click.echo(f"{outcome.events} of {outcome.recorded} events were the same: {folder}")
    elif outcome.incomplete:
        click.echo(f"✔ {outcome.events} events, all the same; there the recording stops, its process died: {folder}")
    elif outcome.ok:
        click.echo(f"✔ {outcome.events} events, status {outcome.status}: the same as recorded ({outcome.mode})")
    else:
        click.echo(f"✘ ends with {outcome.status or 'no status'}, recorded was {outcome.recorded_status}: {folder}")
