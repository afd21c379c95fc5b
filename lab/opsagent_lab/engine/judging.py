"""What the target's own `ServerArgs` says of a set of flags without a launch: resolved arguments, or the refusal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsagent_lab.engine import argv, modeldir, noise, rules
from opsagent_lab.engine.hardware import Gpu
from opsagent_lab.engine.launch import Launch
from opsagent_lab.engine.serverargs import server_args
from opsagent_lab.engine.settings import Refusal
from opsagent_lab.engine.shape import read_shape
from opsagent_lab.files import Files


@dataclass(frozen=True, slots=True)
class Judged:
    """`kind` and `words` are exception and message of a refusal ('' when accepted); `code` the status of a real launch."""

    accepted: bool
    kind: str = ""
    words: str = ""
    code: int = 0
    notes: tuple[str, ...] = ()
    """What SGLang printed while it resolved the arguments."""
    resolved: Mapping[str, Any] = field(default_factory=dict)
    """All arguments by name, as `/server_info` shows them."""


def judge(version: str, flags: Sequence[str], env: Mapping[str, str], files: Files, gpus: Sequence[Gpu]) -> Judged:
    """Judge one set of flags (with `--model-path` among them)."""
    notes: list[str] = []
    try:
        values = argv.read(version, flags)
        model = modeldir.read_model(files, str(values["model_path"]))
        notes += [say.text for say in noise.generation_config_of(model)]
        shape = read_shape(model.config)
        settings = rules.resolve(version, values, env, shape, gpus, note=notes.append)
    except argv.Usage as usage:
        return Judged(False, "SystemExit", usage.text.strip().splitlines()[-1], usage.code)
    except Refusal as refusal:
        return Judged(False, refusal.kind, refusal.message, 1, tuple(notes))
    except modeldir.NoModel as problem:
        return Judged(False, problem.kind.rpartition(".")[2], problem.message, 1, tuple(notes))
    launch = Launch(settings, shape, model, tuple(gpus), lambda _rank: 0)
    return Judged(True, notes=tuple(notes), resolved=server_args(launch))
