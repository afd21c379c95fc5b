"""`python -m sglang.launch_server` as a process of a simulated host: it prints, takes memory, spawns schedulers,
listens, dies.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator
from dataclasses import dataclass, field

from opsagent_lab.clock import stamp
from opsagent_lab.engine import argv as command_line
from opsagent_lab.engine import boot, cards, modeldir, noise, rules, venvs
from opsagent_lab.engine.card import MIB
from opsagent_lab.engine.hardware import Gpu
from opsagent_lab.engine.launch import Died, Event, Hold, Launch, Limits, ModelDir, Say, Spawn, Wait
from opsagent_lab.engine.service import serve_until_stopped
from opsagent_lab.engine.settings import Refusal, Settings, Value
from opsagent_lab.engine.shape import Shape, read_shape
from opsagent_lab.engine.traces import trace
from opsagent_lab.program import SIGKILL, Killed, Process
from opsagent_lab.state import Gpu as StateGpu
from opsagent_lab.state import SimProcess


@dataclass
class Run:
    """One serving process and its children."""

    process: Process
    version: str
    prefix: str
    site: str
    std: str
    cards: list[StateGpu] = field(default_factory=list)
    children: list[SimProcess] = field(default_factory=list)
    quiet: bool = False
    """True while a restored lab goes through what was printed before it was saved."""
    past: float | None = None
    """The moment at which a preloaded server is while it goes through its loading without waiting."""

    def when(self) -> float:
        return self.process.now if self.past is None else self.past

    def sleep(self, seconds: float) -> None:
        """Wait, unless all this happened long ago."""
        if self.past is not None:
            self.past += seconds
        elif not self.quiet:
            self.process.sleep(seconds)

    # -- printing

    def line(self, say: Say) -> None:
        if self.quiet:
            return
        rank = "" if say.rank is None else f" TP{say.rank}"
        head = f"[{stamp(self.when())}{rank}] " if say.stamp else ""
        self.process.write_err(f"{head}{say.text}{say.end}")

    def log(self, text: str) -> None:
        """A line from a client's thread: `RANK\\0TEXT`."""
        rank, _, rest = text.partition("\0")
        with contextlib.suppress(BrokenPipeError, OSError):
            self.process.err(f"[{stamp(self.process.now)}{rank}] {rest}\n".encode())

    # -- cards

    def free(self, rank: int) -> int:
        """Bytes that a card still gives, besides what this server's own ranks hold."""
        world, card = self.process.world, self.cards[rank]
        own = sum(c.gpu_mib.get(card.uuid, 0) for c in self.children)
        return (world.gpu_free_mib(card) + own) * MIB

    def hold(self, rank: int, size: int) -> None:
        with self.process.world.lock:
            if rank < len(self.children) and rank < len(self.cards):
                self.children[rank].gpu_mib[self.cards[rank].uuid] = round(size / MIB)

    # -- children

    def spawn(self, ranks: int) -> None:
        p = self.process
        known = p.sim.memo.get("children")
        if known:
            self.children = [p.host.processes[pid] for pid in known if pid in p.host.processes]
            return
        titles = [f"sglang::scheduler_TP{r}" if ranks > 1 else "sglang::scheduler" for r in range(ranks)]
        for title in [*titles, "sglang::detokenizer"]:
            child = p.world.add_process(
                p.host, list(p.argv), ppid=p.sim.pid, pgid=p.sim.pgid, sid=p.sim.sid, user=p.user, cgroup=p.sim.cgroup,
                unit=p.sim.unit, title=title, cwd=p.sim.cwd, env=dict(p.sim.env), rss_mib=2600,
            )  # fmt: skip
            self.children.append(child)
        p.sim.memo["children"] = [c.pid for c in self.children]

    def dead_child(self) -> SimProcess | None:
        return next((c for c in self.children if c.pid not in self.process.host.processes), None)

    def reap(self) -> None:
        """The children go with their parent (PR_SET_PDEATHSIG), unless the scenario leaves orphans."""
        p = self.process
        if p.world.closing or p.world.settings.get("engine", {}).get("orphans"):
            return
        for child in self.children:
            if child.pid in p.host.processes:
                p.world.end_process(p.host, child.pid)


def launch_server(process: Process, arguments: list[str]) -> int:
    """Run until it fails, is stopped, or is killed."""
    prefix, venv = venvs.of(process)
    version = venvs.version(venv, "sglang")
    if not version:
        process.write_err(
            f"{process.argv[0]}: Error while finding module specification for 'sglang.launch_server' "
            "(ModuleNotFoundError: No module named 'sglang')\n"
        )
        return 1
    run = Run(process, version, prefix, venvs.site(prefix, venv), venvs.std(venv))
    run.quiet = bool(process.sim.memo.get("events"))
    if process.sim.memo.get("preloaded") and not run.quiet:
        run.past = float(process.sim.memo["born"])
    run.sleep(boot.IMPORT_SECONDS)
    for say in boot.banner(run.site, version):
        run.line(say)
    try:
        values = command_line.read(version, arguments)
    except command_line.Usage as usage:
        (process.write_err if usage.code else process.write_out)(usage.text)
        return usage.code
    try:
        return _accepted(run, values)
    finally:
        run.reap()


def _accepted(run: Run, values: dict[str, Value]) -> int:
    p = run.process
    told: list[Say] = []
    try:
        run.cards, gpus = cards.visible(p, int(str(values.get("base_gpu_id") or 0)), {c.pid for c in run.children})
        if not gpus:
            raise Refusal("RuntimeError", cards.NONE, "args-attention")
        model, shape = _model(run, str(values.get("model_path")))
        values.setdefault("random_seed", p.sim.memo.setdefault("seed", p.world.random.randrange(1, 2**30)))
        told += noise.generation_config_of(model)
        settings = rules.resolve(run.version, values, p.env, shape, gpus, note=lambda t: told.append(Say(t)))
    except Refusal as refusal:
        for say in told:
            run.line(say)
        run.line(boot.refused(refusal, run.site, run.std))
        return 1
    for say in told:
        run.line(say)
    if not run.quiet:
        p.world.count(p.host, "launches")
    return _load_and_serve(run, _launch(run, settings, shape, model, gpus))


def _model(run: Run, path: str) -> tuple[ModelDir, Shape]:
    p = run.process
    where = p.path(path) if path.startswith((".", "/")) or p.files.is_dir(p.path(path)) else path
    try:
        model = modeldir.read_model(p.files, where)
        return model, read_shape(model.config)
    except modeldir.NoModel as problem:
        raise Refusal(problem.kind, problem.message, "args-context") from problem
    except KeyError as problem:
        raise Refusal("KeyError", str(problem), "args-context") from problem


def _launch(run: Run, settings: Settings, shape: Shape, model: ModelDir, gpus: tuple[Gpu, ...]) -> Launch:
    _prefix, venv = venvs.of(run.process)
    engine = run.process.world.settings.get("engine", {})
    codec = venvs.version(venv, "torchcodec")
    return Launch(
        settings=settings,
        shape=shape,
        model=model,
        gpus=gpus,
        free=run.free,
        site=run.site,
        std=run.std,
        pid=run.process.sim.pid,
        torch_archs=tuple(venv.arch_list),
        kernel_archs=venvs.kernel_archs(venv),
        torchcodec="missing" if not codec else "ok" if "ffmpeg" in run.process.host.packages else "no-ffmpeg",
        p2p=all(card.p2p for card in run.cards[: settings.tp]),
        nvcc=not engine.get("needs_nvcc") or run.process.files.exists("/usr/local/cuda/bin/nvcc"),
        load_mib_s=float(engine.get("load_mib_s", 1200.0)),
        garbage=str(engine.get("garbage", {}).get(settings.version, "")),
    )


def _load_and_serve(run: Run, launch: Launch) -> int:
    try:
        limits = _drive(run, launch, boot.boot(launch))
    except Died as end:
        raise Killed(SIGKILL) from end
    except _SchedulerGone as gone:
        return _scheduler_died(run, gone)
    return serve_until_stopped(run, launch, limits)


class _SchedulerGone(Exception):
    def __init__(self, rank: int) -> None:
        super().__init__(str(rank))
        self.rank = rank


def _drive(run: Run, launch: Launch, events: Generator[Event, None, Limits]) -> Limits:
    """Play the events of a launch in the world; a restored lab goes silently to where it was."""
    p, done = run.process, 0
    before = int(p.sim.memo.get("events", 0))
    while True:
        try:
            event = next(events)
        except StopIteration as end:
            run.quiet = False
            limits: Limits = end.value
            return limits
        done += 1
        run.quiet = done <= before
        _play(run, launch, event)
        p.sim.memo["events"] = max(done, before)
        dead = run.dead_child() if run.children else None
        if dead is not None:
            raise _SchedulerGone(run.children.index(dead))


def _play(run: Run, launch: Launch, event: Event) -> None:
    p = run.process
    if isinstance(event, Say):
        if event.text.startswith("Load weight begin.") and not run.quiet and not event.rank:
            p.world.count(p.host, "weight_loads")
        run.line(event)
    elif isinstance(event, Hold):
        run.hold(event.rank, event.size)
    elif isinstance(event, Spawn):
        run.spawn(launch.settings.tp)
        if not run.quiet:
            _sabotage(run)
    elif isinstance(event, Wait) and not run.quiet:
        _wait(run, event)


def _wait(run: Run, event: Wait) -> None:
    """Sleep in small steps, so that a scheduler's death is noticed."""
    left = event.seconds
    while left > 0:
        step = left if run.past is not None else min(left, 5.0)
        run.sleep(step)
        left -= step
        if run.children and run.dead_child() is not None:
            return


def _sabotage(run: Run) -> None:
    """A scenario may have the kernel kill a scheduler, once or several times (`engine.oom_kill = N`)."""
    p = run.process
    engine = p.world.settings.get("engine", {})
    left = int(p.world.extras.get("oom_kills", engine.get("oom_kill", 0)))
    if left <= 0:
        return
    p.world.extras["oom_kills"] = left - 1
    victim = run.children[0]
    p.world.kernel(
        p.host, f"Out of memory: Killed process {victim.pid} (sglang::schedul) total-vm:98304000kB, anon-rss:61440000kB"
    )
    p.world.end_process(p.host, victim.pid)


def _scheduler_died(run: Run, gone: _SchedulerGone) -> int:
    if run.version == "0.5.9":
        run.line(Say(f"Rank {gone.rank} scheduler is dead. Please check if there are relevant logs."))
        run.line(Say("Exit code: -9"))
        run.line(
            Say(trace("scheduler-eof", site=run.site, std=run.std, kind="EOFError", message=""), stamp=False, end="")
        )
        return 1
    message = (
        f"Rank {gone.rank} scheduler died during initialization (exit code: -9). If exit code is -9 (SIGKILL), a common "
        "cause is the OS OOM killer. Run `dmesg -T | grep -i oom` to check."
    )
    text = trace("scheduler-died", site=run.site, std=run.std, kind="RuntimeError", message=message)
    run.line(Say(text, stamp=False, end=""))
    return 1
