"""A launch from the first line to the moment before the port is bound, as a stream of events."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator

from opsagent_lab.engine import loading, modern, noise
from opsagent_lab.engine.drafting import draft
from opsagent_lab.engine.faults import Fault, torch_warning
from opsagent_lab.engine.graphs import graphs
from opsagent_lab.engine.launch import Died, Event, Launch, Limits, Say, Spawn, Trouble, Wait
from opsagent_lab.engine.serverargs import server_args_line
from opsagent_lab.engine.settings import Refusal, Settings
from opsagent_lab.engine.traces import trace

IMPORT_SECONDS = 9.0
SPAWN_SECONDS = 14.0


def banner(site: str, version: str = "0.5.11") -> Iterator[Say]:
    """Printed before anything else when it was started as `-m sglang.launch_server` (0.5.9 says nothing)."""
    line = {"0.5.10": 51, "0.5.11": 54, "0.5.23": 71}.get(version)
    if line is not None:
        yield Say(noise.DEPRECATED_ENTRY.format(site=site, line=line), stamp=False)


def refused(refusal: Refusal, site: str, std: str) -> Say:
    """The traceback of a launch that its own argument check ended (exit code 1)."""
    text = trace(refusal.trace, site=site, std=std, kind=refusal.kind, message=refusal.message)
    return Say(text, stamp=False, end="")


def notes(settings: Settings) -> Iterator[Say]:
    for text in settings.notes:
        yield Say(text)


def boot(launch: Launch) -> Generator[Event, None, Limits]:
    """All phases after the arguments were accepted. Raises Died after the last words of a launch that fails."""
    yield from _main_process(launch)
    warning = torch_warning(launch)
    if warning:
        yield Say(warning, stamp=False)
    yield Wait(SPAWN_SECONDS, "spawn")
    yield Spawn()
    try:
        run = modern.schedulers if launch.settings.modern else _schedulers
        return (yield from run(launch))
    except Fault as fault:
        yield from _death(launch, fault.trouble)
        raise Died(137, fault.trouble.cause) from fault


def _main_process(launch: Launch) -> Iterator[Event]:
    yield Wait(1.3, "arguments")
    yield Say("Fail to set RLIMIT_NOFILE: current limit exceeds maximum limit")
    yield Say(server_args_line(launch))
    yield Wait(0.8, "tokenizer")
    yield from noise.processor_import(launch)
    yield from noise.processor(launch)
    yield from noise.tokenizer(launch)
    if launch.shape.vision is not None:
        yield from noise.model_imports(launch)
    if launch.model.chat_template:
        yield Say(
            f"Using default HuggingFace chat template with detected content format: {launch.model.content_format}"
        )
    else:
        yield Say("No HuggingFace chat template found")
        yield Say("No chat template found, defaulting to 'string' content format")


def _schedulers(launch: Launch) -> Generator[Event, None, Limits]:
    state = yield from loading.connect(launch)
    phases: tuple[Callable[[Launch, loading.Loaded], Iterator[Event]], ...] = (
        loading.load,
        loading.pools,
        loading.backends,
        graphs,
        lambda at, _s: loading.scheduler_tokenizer(at),
        draft,
        loading.summary,
    )
    for phase in phases:
        yield from phase(launch, state)
    return loading.limits(launch, state)


def _death(launch: Launch, trouble: Trouble) -> Iterator[Event]:
    """Each scheduler prints its traceback and signals the main process, which kills the whole tree, itself included."""
    text = trace(
        trouble.trace, site=launch.site, std=launch.std, kind=trouble.kind, message=trouble.message, fill=trouble.fill
    )
    for r in launch.ranks if launch.settings.tp <= len(launch.gpus) else range(len(launch.gpus), launch.settings.tp):
        yield Say(f"Scheduler hit an exception: {text}", loading.rank_of(launch, r))
        yield Say("Received sigquit from a child process. It usually means the child failed.")
    yield Wait(0.3, "death")
