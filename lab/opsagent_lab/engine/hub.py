"""A model hub that can stall, truncate, corrupt, throttle and refuse; and the way of its files onto a host's disk.

The scenario's table `hub` drives it: `rate_mib_s`, `stall_at` (bytes of the repository that are there when it stops moving),
`stalls` (how often), `stall_over` (`xet`, `http` or `any`), `corrupt` and `truncate` (file names, `times` each), `status`
(answered instead of files, `times` times, with `retry_after`), `gated` (repositories), `down` (nothing answers).
"""

from __future__ import annotations

import fnmatch
import posixpath
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opsagent_lab.engine import catalogue
from opsagent_lab.engine.catalogue import RepoFile
from opsagent_lab.program import Process
from opsagent_lab.state import MIB, Node

HOST = "https://huggingface.co"
_TICK = 4.0


class HubError(Exception):
    """What huggingface_hub would raise. `kind`: gated, missing-repo, missing-file, status, down, timeout, consistency."""

    def __init__(self, kind: str, message: str, status: int = 0, retry_after: int = 0) -> None:
        super().__init__(message)
        self.kind, self.message, self.status, self.retry_after = kind, message, status, retry_after


@dataclass(frozen=True, slots=True)
class Wish:
    """One download. `resume`: huggingface_hub before 1.20 goes on in a partial file, later ones start it again."""

    repo: str
    folder: str
    cache: bool = False
    """`folder` is a cache (blobs and snapshots) and not a plain directory."""
    names: tuple[str, ...] = ()
    include: tuple[str, ...] = ()
    exclude: tuple[str, ...] = ()
    workers: int = 8
    xet: bool = True
    resume: bool = False
    force: bool = False
    token: str = ""


def settings(process: Process) -> dict[str, Any]:
    return dict(process.world.settings.get("hub", {}))


def _used(process: Process, fault: str, most: int) -> bool:
    """Whether a fault still has something left, and use it."""
    with process.world.lock:
        counts = process.world.extras.setdefault("hub", {})
        if counts.get(fault, 0) >= most:
            return False
        counts[fault] = counts.get(fault, 0) + 1
        return True


def listing(process: Process, wish: Wish) -> list[RepoFile]:
    """The files that a download would fetch. Raises HubError."""
    hub = settings(process)
    if hub.get("down") or process.env.get("HF_HUB_OFFLINE", "") in ("1", "true", "TRUE"):
        raise HubError("down", "[Errno 111] Connection refused")
    if hub.get("status") and _used(process, f"status:{hub['status']}", int(hub.get("times", 1))):
        status = int(hub["status"])
        words = {429: "Too Many Requests", 503: "Service Unavailable", 403: "Forbidden", 401: "Unauthorized"}
        url = f"{HOST}/api/models/{wish.repo}/revision/main"
        raise HubError(
            "gated" if status in (401, 403) else "status",
            f"{'Client' if status < 500 else 'Server'} error '{status} {words.get(status, 'Error')}' for url '{url}'",
            status,
            int(hub.get("retry_after", 30)),
        )
    repo = catalogue.find(wish.repo)
    if repo is None:
        raise HubError("missing-repo", f"Model '{wish.repo}' not found.", 404)
    if repo in hub.get("gated", []) and not wish.token:
        raise HubError("gated", f"Access denied. Model '{repo}' requires approval.", 401)
    every = catalogue.files_of(repo)
    missing = [n for n in wish.names if n not in {f.name for f in every}]
    if missing:
        raise HubError("missing-file", f"{HOST}/{repo}/resolve/main/{missing[0]}", 404)
    return [f for f in every if _chosen(f.name, wish)]


def _chosen(name: str, wish: Wish) -> bool:
    if wish.names:
        return name in wish.names
    if wish.include and not any(fnmatch.fnmatchcase(name, p) for p in wish.include):
        return False
    return not any(fnmatch.fnmatchcase(name, p) for p in wish.exclude)


def final_path(wish: Wish, file: RepoFile) -> str:
    """Where the content of a file ends."""
    if not wish.cache:
        return posixpath.join(wish.folder, file.name)
    return posixpath.join(repo_folder(wish), "blobs", file.sha256 if file.lfs else file.sha256[:40])


def repo_folder(wish: Wish) -> str:
    return posixpath.join(wish.folder, "models--" + wish.repo.replace("/", "--"))


def snapshot(wish: Wish) -> str:
    """What a finished download is used by."""
    if not wish.cache:
        return wish.folder
    return posixpath.join(repo_folder(wish), "snapshots", catalogue.commit_of(wish.repo))


def _partial(process: Process, wish: Wish, file: RepoFile) -> str:
    tail = "" if wish.resume else f".{process.world.random.randrange(16**8):08x}"
    if wish.cache:
        return f"{final_path(wish, file)}{tail}.incomplete"
    name = f"{file.sha256[40:60]}=.{file.sha256}{tail}.incomplete"
    return posixpath.join(wish.folder, ".cache/huggingface/download", name)


def fetch(process: Process, wish: Wish, report: Callable[[int, int], None] = lambda _d, _t: None) -> list[RepoFile]:
    """Download what is not there yet; `report(bytes there, bytes in all)`. Raises HubError, or OSError when the
    disk is full.
    """
    todo = listing(process, wish)
    total = sum(f.size for f in todo)
    process.files.mkdir(wish.folder, parents=True)
    if not wish.cache:
        process.files.mkdir(posixpath.join(wish.folder, ".cache/huggingface/download"), parents=True)
    _Download(process, wish, todo, total, report).run()
    return todo


@dataclass
class _Download:
    process: Process
    wish: Wish
    todo: list[RepoFile]
    total: int
    report: Callable[[int, int], None]

    def run(self) -> None:
        queue = [f for f in self.todo if not self._there(f)]
        done = sum(f.size for f in self.todo) - sum(f.size for f in queue)
        self.report(done, self.total)
        active: dict[str, tuple[RepoFile, str]] = {}
        try:
            while queue or active:
                while queue and len(active) < self.wish.workers:
                    file = queue.pop(0)
                    active[file.name] = (file, self._begin(file))
                self._maybe_stall(done, active)
                done += self._tick(active)
                self.report(min(done, self.total), self.total)
        except (HubError, OSError):
            for _file, path in active.values():
                if self.process.files.exists(path) and not self.wish.resume:
                    self.process.files.unlink(path)
            raise

    def _there(self, file: RepoFile) -> bool:
        node = self.process.files.find(final_path(self.wish, file))
        if node is None or self.wish.force:
            return False
        if self.wish.cache:
            self._link(file)
            return True
        if node.size == file.size and self.process.files.exists(self._metadata(file)):
            return True
        if node.size == file.size and not file.lfs:
            return True
        return node.size == file.size and node.sha256 == file.sha256

    def _metadata(self, file: RepoFile) -> str:
        return posixpath.join(self.wish.folder, ".cache/huggingface/download", f"{file.name}.metadata")

    def _begin(self, file: RepoFile) -> str:
        path = _partial(self.process, self.wish, file)
        if not self.process.files.exists(path):
            self.process.files.put(path, Node(size=0))
        return path

    def _maybe_stall(self, done: int, active: dict[str, tuple[RepoFile, str]]) -> None:
        hub = settings(self.process)
        limit = int(hub.get("stall_at", 0))
        way = "xet" if self.wish.xet else "http"
        if not limit or hub.get("stall_over", "xet") not in (way, "any"):
            return
        here = done + sum(self.process.files.get(p).size for _f, p in active.values())
        if here < limit or not _used(self.process, f"stall:{way}", int(hub.get("stalls", 10**6))):
            return
        if way == "http" and hub.get("timeout", True):
            for _ in range(6):
                self.process.sleep(11.0)
            raise HubError("timeout", "httpx2.ReadTimeout: timed out")
        while True:
            self.process.sleep(30.0)

    def _tick(self, active: dict[str, tuple[RepoFile, str]]) -> int:
        """Let every active file grow for a few seconds; returns the bytes of those that were finished."""
        self.process.sleep(_TICK)
        share = int(float(settings(self.process).get("rate_mib_s", 110.0)) * MIB * _TICK / max(1, len(active)))
        finished = 0
        for name, (file, path) in list(active.items()):
            node = self.process.files.get(path)
            grow = min(share, file.size - node.size)
            if grow > self.process.files.free(path):
                raise OSError(28, "No space left on device", path)
            node.size += grow
            node.mtime = self.process.now
            if node.size >= file.size:
                del active[name]
                self._finish(file, path)
                finished += file.size
        return finished

    def _finish(self, file: RepoFile, path: str) -> None:
        hub, files = settings(self.process), self.process.files
        files.unlink(path)
        times = int(hub.get("times", 1))
        if file.name in hub.get("truncate", []) and _used(self.process, f"truncate:{file.name}", times):
            raise HubError(
                "consistency",
                f"Consistency check failed: file should be of size {file.size} but has size {file.size // 2} ({file.name}).",
            )
        node = catalogue.node_of(file, self.wish.repo)
        if file.name in hub.get("corrupt", []) and _used(self.process, f"corrupt:{file.name}", times):
            node.sha256 = file.sha256[::-1]
            node.notes["wrong"] = "truncated"
        files.put(final_path(self.wish, file), node)
        if self.wish.cache:
            self._link(file)
            return
        commit = catalogue.commit_of(self.wish.repo)
        files.put(self._metadata(file), _text(f"{commit}\n{file.sha256}\n{self.process.now:.6f}\n"))

    def _link(self, file: RepoFile) -> None:
        where = posixpath.join(snapshot(self.wish), file.name)
        if not self.process.files.exists(where):
            self.process.files.mkdir(posixpath.dirname(where), parents=True)
            self.process.files.symlink(final_path(self.wish, file), where)
            ref = posixpath.join(repo_folder(self.wish), "refs/main")
            self.process.files.put(ref, _text(catalogue.commit_of(self.wish.repo)))


def _text(text: str) -> Node:
    data = text.encode()
    return Node(data=data, size=len(data))
