"""Where runs live, and which one a person means: an id, a unique prefix of one, or a path."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from opsagent.journal.fold import fold
from opsagent.journal.lock import is_live
from opsagent.journal.reader import EVENTS, Log, read_log
from opsagent.journal.state import RunState
from opsagent.xdg import state_home
from opsagent_tools.errors import InputError, OpsError


def runs_root(env: Mapping[str, str] | None = None) -> Path:
    """`$XDG_STATE_HOME/opsagent/runs`, by default under `~/.local/state`."""
    return state_home(env) / "runs"


def new_run(out: Path | None = None, *, root: Path | None = None) -> tuple[str, Path]:
    """A fresh id and the folder of its run. With `out` the run lies there, and the root keeps a link to it.

    Raises InputError when the folder cannot be made or holds a run.
    """
    root = root or runs_root()
    if out is not None and (out / EVENTS).exists():
        raise InputError("this folder holds a run already", where=str(out), hint="`opsagent resume` goes on with it")
    try:
        root.mkdir(parents=True, exist_ok=True, mode=0o700)
        for length in (2, 2, 2, 3, 4, 6):
            run = secrets.token_hex(length)
            place = root / run
            try:
                if out is None:
                    place.mkdir(mode=0o700)
                    return run, place
                place.symlink_to(out.absolute(), target_is_directory=True)
            except FileExistsError:
                continue
            out.mkdir(parents=True, exist_ok=True, mode=0o700)
            return run, out
    except OSError as error:
        raise InputError(
            f"cannot make the run's folder: {error.strerror}", where=str(error.filename or root),
            hint="set XDG_STATE_HOME to a folder that can be written, or give --out DIR",
        ) from error  # fmt: skip
    raise InputError(f"no free run id in {root}", hint="remove old runs")


def find_run(ref: str, *, root: Path | None = None) -> Path:
    """The folder of a run. Raises InputError: none, or several that begin like this."""
    if not ref.strip():
        raise InputError("no run given", hint="`opsagent runs` lists them")
    path = Path(ref)
    if (path / EVENTS).is_file():
        return path
    if path.name == EVENTS and path.is_file():
        return path.parent
    root = root or runs_root()
    names = [folder.name for folder in run_folders(root)]
    found = [name for name in names if name == ref] or [name for name in names if name.startswith(ref)]
    if "/" in ref or not found:
        why = "no journal in this folder" if path.is_dir() else "no such run"
        raise InputError(f"{why}: {ref}", where=str(root), hint="`opsagent runs` lists the runs; a path works too")
    if len(found) > 1:
        raise InputError(
            f"{ref} begins {len(found)} runs: {', '.join(sorted(found)[:8])}", hint="write one more character"
        )
    return root / found[0]


def run_folders(root: Path | None = None) -> Iterator[Path]:
    """Folders that hold a journal, newest first."""
    root = root or runs_root()
    found: list[tuple[float, Path]] = []
    with contextlib.suppress(OSError):
        for folder in root.iterdir():
            with contextlib.suppress(OSError):
                found.append(((folder / EVENTS).stat().st_mtime, folder))
    for _time, folder in sorted(found, reverse=True):
        yield folder


@dataclass(frozen=True, slots=True)
class Opened:
    """A run folder that was read."""

    folder: Path
    log: Log
    state: RunState

    @property
    def status(self) -> str:
        """The report's status; `running` while a process writes it, `stopped` when one died."""
        return self.state.status or ("running" if is_live(self.folder) else "stopped")


def open_run(ref: str | Path, *, root: Path | None = None) -> Opened:
    """Find and read a run. Raises InputError, TranscriptDamaged, JournalError."""
    folder = ref if isinstance(ref, Path) else find_run(ref, root=root)
    log = read_log(folder)
    return Opened(folder, log, fold(log.events))


def all_runs(root: Path | None = None) -> Iterator[Opened | tuple[Path, OpsError]]:
    """Every run, newest first; a damaged one with its error, so that a list is never empty because of one."""
    for folder in run_folders(root):
        try:
            yield open_run(folder)
        except OpsError as error:
            yield folder, error
