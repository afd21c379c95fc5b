"""`opsagent plan`: predict memory and limits of a launch, and find better flags. Nothing is started, no host is asked."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from opsagent.cli import fail

if TYPE_CHECKING:
    from opsagent_tools.sglang.plan import Plan


@click.command("plan", context_settings={"ignore_unknown_options": False})
@click.option("--model", "model", metavar="DIR", help="Model directory (config.json is enough), or a config.json.")
@click.option("--gpu", metavar="NAME:MIB", help='Card and its memory.total in MiB, e.g. "RTX A6000:49140".')
@click.option("--num-gpus", default="1", metavar="N", show_default=True, help="Cards of this kind.")
@click.option("--free-gib", metavar="X", help='Free GiB per card at "Load weight begin"; estimated if left out.')
@click.option("--sglang", "version", metavar="VER", help="SGLang's version; the newest that is modelled if left out.")
@click.option("--want-context", metavar="N", help="Context length that you want, tokens.")
@click.option("--want-concurrency", metavar="N", help="Requests at once that you want.")
@click.option("--keep", multiple=True, metavar="WHAT", help="What must not change: speculation, precision, or a flag.")
@click.option("--svg", metavar="FILE", help="Write the frontier as a picture.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on stdout.")
@click.argument("flags", nargs=-1, type=click.UNPROCESSED)
def command(
    model: str | None,
    gpu: str | None,
    num_gpus: str,
    free_gib: str | None,
    version: str | None,
    want_context: str | None,
    want_concurrency: str | None,
    keep: tuple[str, ...],
    svg: str | None,
    as_json: bool,
    flags: tuple[str, ...],
) -> int:
    r"""Predict whether a launch starts, with which limits, and which flags are better. SGLang's FLAGS come after --.

    \b
    Examples:
      opsagent plan --model Qwen3.6-27B --gpu "RTX A6000:49140" --num-gpus 2 --want-context 32768 \
          --want-concurrency 4 -- --tp 2
      opsagent plan --model Qwen3.6-27B --gpu H200:143771 --free-gib 139.1 --json
      opsagent plan --model Qwen3.6-27B --gpu "RTX A6000:49140" --num-gpus 2 --svg frontier.svg -- --tp 2

    Exit code: 0 it fits, 1 it would fail, 2 we cannot read the question.
    """
    from opsagent_tools.errors import OpsError

    try:
        found = predict(model, gpu, num_gpus, free_gib, version, want_context, want_concurrency, keep, flags)
        if svg:
            from opsagent_tools.sglang.picture import frontier_svg

            Path(svg).write_text(frontier_svg(found), encoding="utf-8")
    except OpsError as error:
        fail(error, as_json=as_json)
        return 2
    except OSError as error:
        from opsagent_tools.errors import InputError

        fail(InputError(error.strerror or str(error), where=str(error.filename or svg or "")), as_json=as_json)
        return 2
    show(found, as_json=as_json)
    return 0 if found.verdict == "fits" else 1


def predict(
    model: str | None,
    gpu: str | None,
    num_gpus: str,
    free_gib: str | None,
    version: str | None,
    want_context: str | None,
    want_concurrency: str | None,
    keep: tuple[str, ...],
    flags: tuple[str, ...],
) -> Plan:
    """Read the question and plan. Raises InputError with what to write instead."""
    from opsagent_tools.errors import InputError
    from opsagent_tools.sglang.gpus import parse_gpu
    from opsagent_tools.sglang.plan import Wish
    from opsagent_tools.sglang.planner import NEWEST, plan

    if not model:
        raise InputError("no model", where="--model", hint="Give the model's directory: --model DIR.")
    if not gpu:
        raise InputError("no GPU", where="--gpu", hint='Give a card and its memory: --gpu "RTX A6000:49140".')
    cards = parse_gpu(gpu, int(number("--num-gpus", num_gpus, whole=True)))
    free = number("--free-gib", free_gib) if free_gib is not None else None
    if free is not None and free > cards.total_gib:
        raise InputError(
            f"{free:g} GiB free on a card of {cards.total_gib:.1f} GiB", where="--free-gib", hint="It is GiB per card."
        )
    context = int(number("--want-context", want_context, whole=True)) if want_context is not None else None
    requests = int(number("--want-concurrency", want_concurrency, whole=True)) if want_concurrency is not None else None
    config, checkpoint = read_model(model)
    found = plan(
        config,
        gpus=cards,
        flags=list(flags),
        sglang=version or NEWEST,
        env={name: value for name, value in os.environ.items() if name.startswith("SGLANG_")},
        free_gib=free,
        want=Wish(context=context, concurrency=requests) if context or requests else None,
        keep=keep,
        checkpoint=checkpoint,
        draft_config=read_draft(flags),
    )
    return found.model_copy(update={"model": model})


def number(option: str, text: str | None, *, whole: bool = False) -> float:
    """A positive number of the command line."""
    from opsagent_tools.errors import InputError

    try:
        value = float(int(text or "")) if whole else float(text or "")
    except ValueError:
        value = 0.0
    if not 0 < value < 1e12:
        kind = "whole number" if whole else "number"
        raise InputError(f"{text!r} is not a positive {kind}", where=option, hint=f"Write a {kind} above 0.")
    return value


def read_model(model: str) -> tuple[dict[str, Any], Any]:
    """(configuration, facts of the weight files or None). A folder with only config.json is enough."""
    from opsagent_tools.probes.model_files import describe, read_json
    from opsagent_tools.read_config import config_of, described

    path = Path(model)
    if path.is_file():
        config, error = read_json(path)
        answer = {"found": True, "config": config, "config_error": error}
        return config_of(answer, str(path.parent)), None
    answer = describe(str(path))
    config = config_of(answer, model)
    facts = described(answer, model).checkpoint if answer["shards"] else None
    return config, facts


def read_draft(flags: tuple[str, ...]) -> dict[str, Any] | None:
    """Configuration of the draft model that the flags name, when it lies here."""
    for at, word in enumerate(flags):
        name, equal, value = word.partition("=")
        if name.startswith("--speculative-draft-model-p"):
            path = Path(value if equal else flags[at + 1] if at + 1 < len(flags) else "")
            if path.is_dir() and (path / "config.json").is_file():
                return read_model(str(path))[0]
    return None


def show(found: Plan, *, as_json: bool) -> None:
    """The plan on stdout: one JSON object, or for people."""
    if as_json:
        click.echo(found.model_dump_json(exclude_defaults=False))
        return
    from opsagent_tools.sglang.words import plan_text

    click.echo(plan_text(found))
