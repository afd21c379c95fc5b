"""The tool `read_config`: a model directory on the host, as SGLang and the planner will see it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field

from opsagent_tools import probes
from opsagent_tools.errors import InputError, ToolFailed
from opsagent_tools.host import Host
from opsagent_tools.sglang.architectures import least_version
from opsagent_tools.sglang.checkpoint import CheckpointFacts, facts_of, half_downloaded
from opsagent_tools.sglang.modelspec import ModelSpec
from opsagent_tools.sglang.quant import read_quant
from opsagent_tools.sglang.read_spec import read_spec
from opsagent_tools.tool import Args, Context, Result, Tool


class ReadConfigArgs(Args):
    path: str = Field(pattern=r"^/", description="The model's directory on the host, absolute.")
    headers: bool = Field(
        default=True, description="Read the header of every weight file (a moment each), not only sizes."
    )


class ReadConfigResult(Result):
    """Everything that estimate_vram needs, and what a person wants to know. Bytes as they lie on disk."""

    path: str
    complete: bool
    """Every promised weight file is there, as long as its header says. False for a directory without weights."""
    architecture: str
    model_type: str
    config: dict[str, Any]
    """config.json, with the quantisation of hf_quant_config.json when only that has it."""
    checkpoint: CheckpointFacts
    least_sglang: str
    """Oldest modelled SGLang that has this model class; '' when none has."""
    context: int
    """Longest context the model was made for, in tokens."""
    layers: dict[str, int]
    """Decoder layers by kind: full, swa, linear, both; and moe, dense."""
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    experts: int = 0
    experts_per_token: int = 0
    mtp_layers: int = 0
    vision: bool = False
    quantization: str = ""
    dtype: str = ""
    bytes: int = 0
    tensors: int = 0
    notes: list[str] = []


def run(host: Host, args: ReadConfigArgs, ctx: Context | None = None) -> ReadConfigResult:
    """Read it. Raises ToolFailed when there is no directory or no configuration, InputError when it is not a model's."""
    answer = probes.ask(host, "model_files", {"path": args.path, "headers": args.headers}, timeout_s=120, keep=16 << 20)
    return described(answer, args.path)


def described(answer: Mapping[str, Any], path: str) -> ReadConfigResult:
    """From the probe's answer to the result; used for local directories too."""
    config = config_of(answer, path)
    spec = read_spec(config)
    facts = facts_of(answer, spec.dtype_bytes)
    quant = read_quant(spec.quantization)
    notes = list(spec.not_modelled)
    if answer.get("unfinished"):
        notes.append(f"unfinished download: {', '.join(answer['unfinished'][:3])}")
    if facts.bad:
        notes.append(half_downloaded(facts))
    since = least_version(spec.architecture)
    if not since:
        notes.append(f"no modelled SGLang has a class {spec.architecture}")
    return ReadConfigResult(
        path=path,
        complete=bool(facts.complete),
        architecture=spec.architecture,
        model_type=spec.model_type,
        config=config,
        checkpoint=facts,
        least_sglang=since,
        context=spec.context,
        layers=layers_of(spec),
        hidden=spec.hidden,
        heads=spec.heads,
        kv_heads=spec.kv_heads,
        head_dim=spec.head_dim,
        experts=spec.moe.experts if spec.moe else 0,
        experts_per_token=spec.moe.top_k if spec.moe else 0,
        mtp_layers=spec.mtp_layers,
        vision=spec.vision is not None,
        quantization=quant.method,
        dtype={2: "bfloat16", 4: "float32"}.get(spec.dtype_bytes, ""),
        bytes=facts.total_bytes,
        tensors=facts.tensors,
        notes=notes,
        cause="checkpoint-shard-corrupt" if facts.bad else None,
        summary=summary_of(spec, facts, quant.method),
    )


def config_of(answer: Mapping[str, Any], path: str) -> dict[str, Any]:
    """The configuration, or an error that says what is wrong with the directory."""
    if not answer.get("found"):
        hint = "Look at the path, or download the model first; for a prediction its config.json alone is enough."
        raise ToolFailed(f"{path} is no directory", hint=hint)
    if answer.get("config_error"):
        raise InputError(
            f"config.json cannot be read: {answer['config_error']}",
            where=f"{path}/config.json",
            hint="Download it again.",
        )
    config = answer.get("config")
    if not isinstance(config, dict):
        raise InputError(
            "there is no config.json", where=path, hint="Give the directory of a model in Hugging Face's layout."
        )
    quant = answer.get("quant_config")
    if isinstance(quant, dict) and not config.get("quantization_config"):
        config = {**config, "quantization_config": {"quant_method": "modelopt", **(quant.get("quantization") or {})}}
    return config


def layers_of(spec: ModelSpec) -> dict[str, int]:
    counts: dict[str, int] = {}
    for layer in spec.layers:
        for kind in (layer.mixer, layer.mlp):
            if kind != "none":
                counts[kind] = counts.get(kind, 0) + 1
    return counts


def summary_of(spec: ModelSpec, facts: CheckpointFacts, quantization: str) -> str:
    kinds = " + ".join(f"{count} {kind}" for kind, count in layers_of(spec).items() if kind not in ("dense", "moe"))
    extras = [kinds + " layers"]
    extras += [f"{spec.moe.experts} experts"] if spec.moe else []
    extras += ["MTP"] if spec.mtp_layers else []
    extras += ["vision"] if spec.vision else []
    extras += [quantization] if quantization else []
    if facts.bad:
        extras.append(half_downloaded(facts))
    elif facts.total_bytes:
        extras.append(f"{facts.total_bytes / 2**30:.2f} GiB in {facts.files} files")
    else:
        extras.append("no weight files")
    return f"{spec.architecture}: {', '.join(extras)}"


TOOL = Tool(
    name="read_config",
    description=(
        "Read a model directory on the host: architecture, layers by kind, experts, MTP, vision, quantisation, context "
        "length, bytes from the real headers of the weight files, which files are missing or cut, least SGLang version. "
        "Give its result to the other tools as `model`."
    ),
    args=ReadConfigArgs,
    result=ReadConfigResult,
    run=run,
    tier="R0",
    recovery="read_only",
)
