"""The tool `preflight`: flags judged by the target's own SGLang, and what else a launch would run into. Loads no weights."""

from __future__ import annotations

import json
from typing import Any

from pydantic import Field

from opsagent_tools import elsewhere, probes
from opsagent_tools.arg_types import Flags, ModelRef, model_path
from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.host import Host
from opsagent_tools.launch.command import ServerCommand, build
from opsagent_tools.machine import network
from opsagent_tools.machine.gpus import Driver, Gpu, read_gpus
from opsagent_tools.machine.processes import tell_secrets
from opsagent_tools.machine.venvs import covers
from opsagent_tools.read_config import ReadConfigArgs
from opsagent_tools.read_config import run as read_model
from opsagent_tools.sglang.diagnosis import diagnose
from opsagent_tools.sglang.gpus import GpuFacts, parse_gpu
from opsagent_tools.tool import Args, Context, Progress, Result, Tool

QUIET_MIB = 700
"""A card on which less is in use counts as free: a desktop, a monitor's process, CUDA's own 500 MiB."""
DISK_GIB = 2.0
"""Compiled kernels, logs and torch's caches of a first start."""
CACHES = ("/root/.cache", "/tmp", "/var/log")


class PreflightArgs(Args):
    model: ModelRef = Field(description="The model's directory on the host, or the result of read_config.")
    flags: Flags = Field(default=[], description="SGLang's flags, without --model-path; a list or one string.")
    port: int = Field(default=30000, ge=1, le=65535, description="Port of the server, unless flags name one.")
    python: str = Field(default="python3", description="Interpreter of the environment that would serve.")
    env: dict[str, str] = Field(default={}, description="Environment variables of the server.")
    load_format: str = Field(default="auto", description="`auto`, or `dummy` for random weights.")
    elsewhere: bool = Field(
        default=True,
        description="Where the host has no SGLang, one installed on opsagent's own machine may judge (the result says so).",
    )
    sglang: str = Field(default="", description="Version that shall judge then; left out: the newest that is there.")
    gpu: str = Field(
        default="",
        description='Cards that a host without a usable GPU will have, as `NAME:MIB`, e.g. "RTX A6000:49140".',
    )
    num_gpus: int = Field(default=1, ge=1, description="How many of them.")


class PreflightResult(Result):
    accepted: bool
    """SGLang accepts the flags, and its kernels run on these cards."""
    words: str = ""
    """SGLang's own words of the refusal."""
    judged: str = ""
    """Who judged, when it was not the host's own SGLang with its own cards: then only the flags are judged."""
    sglang: str | None = None
    torch: str | None = None
    port: int
    port_free: bool
    port_owner: str = ""
    gpus_needed: int = 1
    gpus_visible: int = 0
    gpus_free: bool = True
    """Nobody else holds memory of the cards that it would use."""
    gpus_busy: list[str] = []
    driver_ok: bool = True
    kernels_fit: bool | None = None
    """torch has code for every card that would be used; null when it does not say."""
    disk_ok: bool = True
    disk_free: dict[str, int] = {}
    """Bytes free where caches and logs go."""
    resolved: dict[str, Any] = {}
    """The arguments as SGLang completed them."""
    notes: list[str] = []
    """What it said while it completed them."""

    # A refusal is what was asked for, never a failed call: `failed` stays false, checks look at the fields.


def run(host: Host, args: PreflightArgs, ctx: Context | None = None) -> PreflightResult:
    """Ask. A refusal is a result. Raises ToolFailed when the environment cannot be asked (no python, no SGLang)."""
    ctx = ctx or Context()
    try:
        path = model_path(args.model)
    except ValueError as error:
        raise InputError(str(error)) from error
    command = build(args.python, path, list(args.flags), port=args.port, load_format=args.load_format, env=args.env)
    tell_secrets(command.argv, command.env, ctx.secrets)
    driver, gpus = read_gpus(host)
    ctx.progress(Progress("the target's own SGLang reads the flags", expected_s=20.0))
    answer, judged = _ask(host, args, command, gpus, ctx)
    ctx.progress(Progress("looking at port, cards and disk"))
    return _result(answer, command, driver, gpus, network.listeners(host, command.port), judged)


def _ask(
    host: Host, args: PreflightArgs, command: ServerCommand, gpus: list[Gpu], ctx: Context
) -> tuple[dict[str, Any], str]:
    """What SGLang says, and whose it was: '' for the host's own with its own cards."""
    given = json.dumps({"flags": list(command.argv[3:]), "env": command.env})
    wanted: dict[str, Any] = {"disk": list(CACHES)}
    cards = _pretended(args, gpus)
    try:
        answer = probes.ask(host, "preflight", wanted, python=args.python, stdin=given, timeout_s=300)
        if not answer["error"] and (answer["available"] or cards is None):
            return answer, ""
        if not answer["error"] and cards is not None:
            wanted |= {"pretend": elsewhere.pretended(cards)}
            answer = probes.ask(host, "preflight", wanted, python=args.python, stdin=given, timeout_s=300)
            return answer, f"the host's own SGLang {answer['sglang']}, as if it had {cards.count} x {cards.name}"
        problem = f"{args.python} cannot judge flags: {answer['error']}"
    except ToolFailed as error:
        problem = error.what
    local = elsewhere.find(args.sglang) if args.elsewhere and cards is not None else None
    if local is None or cards is None:
        hint = "install_env makes a serving environment; inspect_host lists those that are there"
        raise ToolFailed(problem, where=host.name, hint=hint)
    python, version = local
    ctx.progress(Progress(f"the host has no SGLang: {version} on this machine reads the flags", expected_s=20.0))
    config = args.model.get("config") if isinstance(args.model, dict) else None
    if not isinstance(config, dict):
        config = read_model(host, ReadConfigArgs(path=model_path(args.model)), ctx).config
    answer = elsewhere.judge(python, config, model_path(args.model), list(command.argv[3:]), command.env, cards)
    return answer, f"SGLang {answer['sglang']} on opsagent's machine, as if it had {cards.count} x {cards.name}"


def _pretended(args: PreflightArgs, gpus: list[Gpu]) -> GpuFacts | None:
    """The cards for which flags are judged where there is no usable one: as named, else as nvidia-smi shows them."""
    if args.gpu:
        return parse_gpu(args.gpu, args.num_gpus)
    usable = [card for card in gpus if card.index is not None and card.memory_total_mib]
    if not usable:
        return None
    least = min(card.memory_total_mib or 0 for card in usable)
    words = (usable[0].compute_capability or "").split(".")
    sm = (int(words[0]), int(words[1])) if len(words) == 2 else None
    return GpuFacts(usable[0].name, least, len(usable), sm)


def _result(
    answer: dict[str, Any], command: ServerCommand, driver: Driver, gpus: list[Gpu], taken: list[network.Listener],
    judged: str,
) -> PreflightResult:  # fmt: skip
    resolved, needed = answer["resolved"], _cards_needed(answer, command)
    first = int(resolved.get("base_gpu_id") or 0)
    used = _chosen([card for card in gpus if card.index is not None], command.env)[first : first + needed]
    busy = [_busy(card) for card in used if (card.memory_used_mib or 0) >= QUIET_MIB]
    archs, mine = answer["arch_list"], answer["devices"][first : first + needed]
    if judged:
        archs, mine = [], []
    missing = sorted({one["capability"] for one in mine if not covers(archs, one["capability"])})
    usable = sum(card.index is not None for card in gpus)
    result = PreflightResult(
        accepted=bool(answer["accepted"]), words=_words(answer), judged=judged, sglang=answer["sglang"],
        torch=None if judged else answer["torch"], port=command.port, port_free=not taken, port_owner=_owner(taken),
        gpus_needed=needed, gpus_visible=usable if judged else len(answer["devices"]), gpus_free=not busy, gpus_busy=busy,
        driver_ok=driver.state == "ok" if judged else bool(answer["available"]),
        kernels_fit=not missing if archs and mine else None, disk_free=answer["free"], resolved=resolved,
        notes=_notes(str(answer["said"])) if answer["accepted"] else [],
    )  # fmt: skip
    result.disk_ok = all(size >= DISK_GIB * 2**30 for size in result.disk_free.values())
    if not result.accepted:
        result.cause = _cause(answer)
    if judged:
        result.cause = result.cause or (driver.cause if not result.driver_ok else None)
    else:
        _hardware(result, driver, answer, missing)
    if result.accepted and not judged and not answer["programs"]["ninja"]:
        result.cause = result.cause or "jit-ninja-missing"
        result.notes.append("ninja is not on the server's PATH: kernels that are compiled at the start will fail")
    result.summary = _summary(result, command)
    return result


def _cards_needed(answer: dict[str, Any], command: ServerCommand) -> int:
    resolved = answer["resolved"]
    if resolved:
        nodes = max(1, int(resolved.get("nnodes") or 1))
        return max(1, int(resolved.get("tp_size") or 1) * int(resolved.get("pp_size") or 1) // nodes)
    words = list(command.argv)
    named = [
        words[at + 1] for at, word in enumerate(words[:-1]) if word in ("--tp", "--tp-size", "--tensor-parallel-size")
    ]
    return int(named[-1]) if named and named[-1].isdigit() else 1


def _chosen(cards: list[Gpu], env: dict[str, str]) -> list[Gpu]:
    """The cards that the server sees, in its order."""
    wish = env.get("CUDA_VISIBLE_DEVICES")
    if wish is None:
        return cards
    names = [word.strip() for word in wish.split(",") if word.strip()]
    return [card for word in names for card in cards if word == str(card.index) or card.uuid.startswith(word)]


def _busy(card: Gpu) -> str:
    holders = (
        ", ".join(f"{one.name or 'process'} (pid {one.pid})" for one in card.holders) or "a process that is not shown"
    )
    return f"GPU {card.index}: {card.memory_used_mib} MiB held by {holders}"


def _owner(taken: list[network.Listener]) -> str:
    return f"{taken[0].process or 'another process'} (pid {taken[0].pid})" if taken else ""


def _words(answer: dict[str, Any]) -> str:
    if answer["accepted"]:
        return ""
    return str(answer["words"]) if answer["kind"] == "SystemExit" else f"{answer['kind']}: {answer['words']}"


def _cause(answer: dict[str, Any]) -> str:
    """The slug of a refusal, by the same signatures that read logs."""
    lines = [*str(answer["said"]).splitlines(), _words(answer)]
    return diagnose(lines, version=answer["sglang"]).cause or "invalid-flag-value"


def _notes(said: str) -> list[str]:
    lines = [line.partition("] ")[2] if line.startswith("[") else line for line in said.splitlines()]
    return [line.strip()[:300] for line in lines if line.strip()][-12:]


def _hardware(result: PreflightResult, driver: Driver, answer: dict[str, Any], missing: list[str]) -> None:
    """What flags cannot mend: no card, kernels for other cards. Then nothing is accepted."""
    causes = [result.cause] if result.cause else []
    if not result.driver_ok:
        causes.append(driver.cause or "nvidia-uvm-missing")
        result.accepted, result.words = False, result.words or driver.words or "CUDA finds no usable card"
    elif result.gpus_visible < result.gpus_needed:
        causes.append("gpu-index-out-of-range")
        result.accepted = False
        result.words = result.words or f"{result.gpus_needed} cards are needed, {result.gpus_visible} are visible"
    elif missing:
        causes.append("torch-build-predates-gpu")
        have = ", ".join(answer["arch_list"])
        result.accepted = False
        result.words = result.words or f"torch has code for {have}, not for compute capability {', '.join(missing)}"
    if not result.port_free:
        causes.append("port-in-use")
    if not result.gpus_free:
        causes.append("gpu-memory-occupied")
    if not result.disk_ok:
        causes.append("disk-full")
    result.cause = causes[0] if causes else None


def _summary(result: PreflightResult, command: ServerCommand) -> str:
    version = result.judged[:1].upper() + result.judged[1:] if result.judged else f"SGLang {result.sglang}"
    if not result.accepted:
        return f"{version} refuses: {result.words}"[:300]
    bad = [f"port {command.port} belongs to {result.port_owner}"] if not result.port_free else []
    bad += result.gpus_busy
    bad += ["little disk space"] if not result.disk_ok else []
    if bad:
        return f"{version} accepts the flags, but {'; '.join(bad)}"[:300]
    if result.judged:
        return f"{version}, accepts the flags; kernels, driver and cards of the host are not judged"[:300]
    cards = f"{result.gpus_needed} free GPU{'s' if result.gpus_needed > 1 else ''}"
    return f"{version} accepts the flags; port {command.port} and {cards} are free"


TOOL = Tool(
    name="preflight",
    description=(
        "Judge server flags before a launch: the target's own SGLang parses and completes them without loading weights, and "
        "port, GPUs, driver, kernels and disk are looked at. `accepted: false` comes with SGLang's words and a cause; that "
        "is a result, not an error. Seconds instead of the minutes of a failed launch."
    ),
    args=PreflightArgs,
    result=PreflightResult,
    run=run,
)
