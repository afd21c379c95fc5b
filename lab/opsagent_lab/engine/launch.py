"""One launch: what goes into it (model directory, cards, environment) and what comes out of it while it loads (events)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from opsagent_lab.engine.hardware import Gpu
from opsagent_lab.engine.settings import Settings
from opsagent_lab.engine.shape import Shape


@dataclass(frozen=True, slots=True)
class Shard:
    """A weight file as the loader meets it. `wrong` is '' or one of truncated, pointer, shape, missing."""

    name: str
    size: int
    wrong: str = ""


@dataclass(frozen=True, slots=True)
class ModelDir:
    """A model directory as far as a launch depends on it."""

    path: str
    config: Mapping[str, Any]
    shards: tuple[Shard, ...] = ()
    generation_config: bool = True
    generic_tokenizer: bool = False
    """The tokenizer has no class of its own: SGLang prints how it falls back."""
    chat_template: bool = True
    content_format: str = "string"


@dataclass(frozen=True, slots=True)
class Launch:
    """Everything that decides how a launch goes. `free` answers at the moment at which a rank asks its card."""

    settings: Settings
    shape: Shape
    model: ModelDir
    gpus: tuple[Gpu, ...]
    free: Callable[[int], int]
    """GPU position → bytes that the driver still gives."""
    site: str = "/opt/sglang/lib/python3.12/site-packages"
    std: str = "/usr/lib/python3.12"
    pid: int = 1000
    torch_archs: tuple[str, ...] = ()
    """What torch was built for (`sm_86`); empty: everything."""
    kernel_archs: tuple[str, ...] = ()
    """What the prebuilt kernels were built for; empty: everything."""
    torchcodec: str = "missing"
    """`missing`, `no-ffmpeg` (the scary OSError) or `ok`."""
    nccl: str = "2.28.9"
    p2p: bool = True
    """False: copies between cards hang (no NVLink, an IOMMU in the way) unless P2P is switched off."""
    nvcc: bool = True
    """Whether kernels that are not prebuilt can be compiled."""
    load_mib_s: float = 1200.0
    """How fast the disk delivers weights."""
    garbage: str = ""
    """A scenario's: this version answers garbage on this host (`repeat`, `nan` or `wrong`) although nothing fails."""

    @property
    def dummy(self) -> bool:
        return self.settings.load_format == "dummy"

    @property
    def ranks(self) -> range:
        return range(self.settings.tp)


@dataclass(frozen=True, slots=True)
class Say:
    """Output. `rank` None is the main process (or a single rank); `stamp` adds SGLang's time prefix."""

    text: str
    rank: int | None = None
    stamp: bool = True
    end: str = "\n"


@dataclass(frozen=True, slots=True)
class Wait:
    seconds: float
    phase: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """A rank's process holds this many bytes of its card now."""

    rank: int
    size: int


@dataclass(frozen=True, slots=True)
class Spawn:
    """The scheduler and detokenizer processes start."""


Event = Say | Wait | Hold | Spawn


@dataclass(frozen=True, slots=True)
class Limits:
    """What a launched server has, and what it says in its summary line and in /server_info. Sizes in bytes."""

    tokens: int
    requests: int
    context: int
    slots: int | None
    weights: int
    kv: int
    graph: int
    available: int
    garbage: str = ""
    """What is wrong with its answers: '' nothing, `repeat`, `nan` or `wrong`."""

    @property
    def max_request_tokens(self) -> int:
        return min(self.context, self.tokens) - 1

    @property
    def max_prompt_tokens(self) -> int:
        return self.max_request_tokens - 5


class Died(Exception):
    """The launch ends: after the printed words, with this exit code (137: SGLang killed its own process tree)."""

    def __init__(self, code: int, cause: str) -> None:
        super().__init__(cause)
        self.code, self.cause = code, cause


@dataclass(slots=True)
class Trouble:
    """A failure inside the schedulers: which traceback, which exception line, on which ranks."""

    trace: str
    kind: str
    message: str
    cause: str
    fill: Mapping[str, str] = field(default_factory=dict)
