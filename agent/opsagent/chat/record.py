"""The record of a chat: a journal like a run's, in a folder of its own, so that a chat goes on after a kill.

Chats live in `$XDG_STATE_HOME/opsagent/chats/<id>/`, beside the runs. `show` and `verify` read them by path.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from opsagent import xdg
from opsagent.approving import policy_of
from opsagent.call import canonical
from opsagent.chat.ground import Ground, lab_ground, real_ground
from opsagent.chat.proposal import PROPOSE
from opsagent.journal import FileJournal
from opsagent.journal.runs import find_run, new_run, run_folders
from opsagent.run import Run, Watcher
from opsagent.runbook.model import Allow, BudgetSpec, FrontMatter, Runbook
from opsagent.session import LAB_STATE, Session, Wish, assemble, known_secrets, schemas
from opsagent_tools.errors import ExitCode, InputError

READS = (
    "inspect_host", "read_config", "estimate_vram", "preflight", "tail_log", "curl_test", "ssh_exec",
)  # fmt: skip
"""What the model of a chat is offered; of ssh_exec only what reads is let through."""

CHAT = Runbook(
    "", "", FrontMatter(opsagent=1, name="chat", allow=Allow(tools=READS), budget=BudgetSpec(wall="0", calls=0, turns=0)),
    "Chat", "", (),
)  # fmt: skip
"""No steps: a chat's calls belong to none."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a chat was begun; kept in its journal."""

    llm: str = ""
    """The model that talks; '' for none."""
    run_llm: str = "autopilot"
    """What decides inside a run."""
    approve: str = ""
    approve_file: str = ""
    hosts: tuple[str, ...] = ()
    """`ROLE=NAME` or `NAME`, as given."""
    hosts_file: str = ""
    lab: str = ""
    folder: str = ""


@dataclass
class Opened:
    """A chat with its journal, hosts and gate."""

    session: Session
    ground: Ground
    settings: Settings
    began: bool = True
    """False when it goes on from an earlier process."""
    runs: dict[str, str] = field(default_factory=dict)
    """Runs of this chat, oldest first: id → folder."""
    open_run: str = ""
    """A run that was under way when the chat's process died."""


def chats_root(env: Mapping[str, str] | None = None) -> Path:
    return xdg.state_home(env) / "chats"


def tools() -> dict[str, Any]:
    """Every tool, so that a call of one that writes is judged and refused on the record, not merely unknown."""
    from opsagent_tools.registry import TOOLS

    return {**TOOLS, PROPOSE.name: PROPOSE}


def begin(settings: Settings, ground: Ground, *, watcher: Watcher, notice: Callable[[str], None]) -> Opened:
    """A new chat. Raises InputError before anything exists."""
    wish = _wish(settings, ground, notice)
    chat, folder = new_run(root=chats_root())
    lab_goes_to(ground, folder)
    known = tools()
    journal = FileJournal.create(folder)
    try:
        for name, value in known_secrets(CHAT, {}).items():
            journal.redactor.add(value, name)
        session = _assembled(wish, chat, folder, journal, known, watcher)
        session.run.emit(
            "run.started", run=chat, kind="chat",
            runbook={"name": "chat", "title": "Chat", "path": "", "sha256": journal.blob(b"", name="runbook.md")},
            tools=journal.blob(canonical(schemas(known)).encode(), name="tools.json"),
            policy=journal.blob(canonical(asdict(policy_of(CHAT, wish))).encode(), name="policy.json"),
            params={}, model=settings.llm or "none", hosts=dict(ground.places.roles), approve="never",
            inventory=ground.places.inventory_path, inventory_sha256=ground.places.fingerprint(),
            lab=ground.places.lab_name, simulated=ground.places.simulated, dry=False, settings=asdict(settings),
        )  # fmt: skip
    except BaseException:
        journal.close()
        raise
    return Opened(session, ground, settings)


def go_on(ref: str, *, llm: str, watcher: Watcher, notice: Callable[[str], None]) -> Opened:
    """The chat of an id (a prefix, a path, `last`) in this process. Raises InputError: none such, or it is in use."""
    folder = _find(ref)
    journal = FileJournal.resume(folder)
    ground: Ground | None = None
    try:
        started = journal.state.started
        if started.get("kind") != "chat":
            raise InputError("this is no chat", where=str(folder), hint="opsagent resume goes on with a run")
        settings = Settings(**{**started["settings"], "hosts": tuple(started["settings"]["hosts"])})
        settings = Settings(**{**asdict(settings), "llm": llm or settings.llm})
        runs, open_run = _runs(journal)
        state = _newest([folder, *map(Path, runs.values())])
        place = Path(settings.folder)
        if settings.lab:
            ground = lab_ground(settings.lab, place, state=state)
        else:
            ground = real_ground(settings.hosts, settings.hosts_file, place)
        lab_goes_to(ground, folder)
        wish = _wish(settings, ground, notice)
        for name, value in known_secrets(CHAT, {}).items():
            journal.redactor.add(value, name)
        session = _assembled(wish, str(started["run"]), folder, journal, tools(), watcher)
        session.run.emit("run.resumed", mode="chat", model=settings.llm or "none")
        calls_ended(session.run, "the chat ended while it ran")
    except BaseException:
        journal.close()
        if ground is not None:
            ground.places.close()
        raise
    return Opened(session, ground, settings, False, runs, open_run)


def calls_ended(run: Run, why: str) -> None:
    """Calls that are open have failed: a chat only reads, so nothing can be half done."""
    for known in run.journal.state.unsettled:
        run.emit("call.failed", call=known.call.id, what=why, where="", hint="", exit_code=int(ExitCode.INTERRUPTED),
                 cause=None)  # fmt: skip


def _wish(settings: Settings, ground: Ground, notice: Callable[[str], None]) -> Wish:
    """The chat itself as a wish: approvals are off, so its gate lets reads through and nothing else."""
    if settings.llm.startswith("replay:"):
        raise InputError("a chat cannot be decided by a recorded run", hint="opsagent replay RUN replays one")
    return Wish(CHAT, ground.places, llm=settings.llm or "autopilot", approve="never", notice=notice)


def _assembled(
    wish: Wish, chat: str, folder: Path, journal: FileJournal, known: dict[str, Any], watcher: Watcher
) -> Session:
    session = assemble(wish, chat, folder, journal, known, watcher)
    session.run.control = {PROPOSE.name: PROPOSE}
    return session


def lab_goes_to(ground: Ground, folder: Path) -> None:
    """From now on the simulated hosts are saved here (a run of the chat saves them with itself while it lasts)."""
    if ground.places.lab is not None:
        ground.places.lab.state = folder / LAB_STATE
        ground.places.lab.save()


def _find(ref: str) -> Path:
    root = chats_root()
    if ref == "last":
        newest = next(run_folders(root), None)
        if newest is None:
            raise InputError(f"no chats yet in {root}", hint="begin with: opsagent chat")
        return newest
    try:
        return find_run(ref, root=root)
    except InputError as error:
        names = ", ".join(folder.name for folder in list(run_folders(root))[:8])
        raise InputError(
            error.what.replace("run", "chat"), where=str(root), hint=f"there are: {names or 'none'}"
        ) from error


def _runs(journal: FileJournal) -> tuple[dict[str, str], str]:
    runs: dict[str, str] = {}
    under_way = ""
    for event in journal.events():
        if event.type == "note" and event.data.get("kind") == "chat.run":
            runs[str(event.data["run"])] = str(event.data["folder"])
            under_way = str(event.data["run"]) if event.data["phase"] == "begun" else ""
    return runs, under_way


def _newest(folders: list[Path]) -> Path | None:
    """The newest state of the simulated hosts: the chat's, or that of a run in which it died."""
    files = [folder / LAB_STATE for folder in folders if (folder / LAB_STATE).is_file()]
    return max(files, key=lambda path: path.stat().st_mtime, default=None)
