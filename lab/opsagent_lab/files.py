"""The file tree of a simulated host: path → node, with links, modes and OSErrors as on Linux; /proc and /sys are views."""

from __future__ import annotations

import errno
import fnmatch
import hashlib
import os
import posixpath
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from opsagent_lab.state import Disk, Node

MAX_LINKS = 40
ENDLESS = ((1, 5), (1, 9))
"""/dev/zero and /dev/urandom: they give zeros without end, a piece at a time."""


class View(Protocol):
    """A computed subtree (procfs, sysfs)."""

    def get(self, path: str) -> Node | None: ...

    def list(self, path: str) -> list[str]: ...

    def write(self, path: str, data: bytes) -> None:
        """Raises OSError as the kernel would."""
        ...


def error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def words(problem: OSError) -> str:
    """What a program prints of it: `No such file or directory`."""
    return problem.strerror or str(problem)


def digest(node: Node) -> str:
    """sha256 of a file's content; of a big file the declared one."""
    if node.sha256:
        return node.sha256
    whole = hashlib.sha256(node.data)
    left, zeros = node.size - len(node.data), bytes(1 << 20)
    while left > 0:
        whole.update(zeros[: min(left, len(zeros))])
        left -= len(zeros)
    return whole.hexdigest()


def on_disk(node: Node) -> int:
    """Allocated bytes, in blocks of 4 KiB."""
    if node.allocated is not None:
        return node.allocated
    return -(-node.size // 4096) * 4096 if node.kind == "file" else 4096 if node.kind == "dir" else 0


@dataclass(frozen=True)
class Files:
    """Access to one host's nodes. Paths are absolute. Not thread-safe by itself: the world's lock is held by callers that
    do more than one step; single operations on dictionaries are atomic enough."""

    nodes: dict[str, Node]
    now: Callable[[], float]
    disks: list[Disk]
    views: dict[str, View]
    """`/proc` → view."""

    # -- looking up

    def _raw(self, path: str) -> Node | None:
        for prefix, view in self.views.items():
            if path == prefix or path.startswith(prefix + "/"):
                return view.get(path)
        return self.nodes.get(path)

    def resolve(self, path: str, *, last: bool = True) -> str:
        """The path with all links followed (the last one only if `last`). The last component need not exist."""
        todo = [part for part in posixpath.normpath(path).split("/") if part]
        at, hops = "/", 0
        while todo:
            part = todo.pop(0)
            if part == "..":
                at = posixpath.dirname(at)
                continue
            step = posixpath.join(at, part)
            node = self._raw(step)
            if node is None:
                if todo:
                    raise error(errno.ENOENT, path)
                return step
            if node.kind == "link" and (todo or last):
                hops += 1
                if hops > MAX_LINKS:
                    raise error(errno.ELOOP, path)
                todo = [p for p in node.target.split("/") if p and p != "."] + todo
                if node.target.startswith("/"):
                    at = "/"
                continue
            if todo and node.kind != "dir":
                raise error(errno.ENOTDIR, path)
            at = step
        return at

    def find(self, path: str, *, follow: bool = True) -> Node | None:
        """The node, or None when there is none (a broken link included)."""
        try:
            return self._raw(self.resolve(path, last=follow))
        except OSError:
            return None

    def get(self, path: str, *, follow: bool = True) -> Node:
        node = self._raw(self.resolve(path, last=follow))
        if node is None:
            raise error(errno.ENOENT, path)
        return node

    def exists(self, path: str) -> bool:
        return self.find(path) is not None

    def is_dir(self, path: str) -> bool:
        node = self.find(path)
        return node is not None and node.kind == "dir"

    def listdir(self, path: str) -> list[str]:
        """Names in a directory, sorted."""
        real = self.resolve(path)
        node = self._raw(real)
        if node is None:
            raise error(errno.ENOENT, path)
        if node.kind != "dir":
            raise error(errno.ENOTDIR, path)
        names: set[str] = set()
        for prefix, view in self.views.items():
            if real == prefix or real.startswith(prefix + "/"):
                return sorted(view.list(real))
            if posixpath.dirname(prefix) == real:
                names.add(posixpath.basename(prefix))
        start = real.rstrip("/") + "/"
        names.update(
            p[len(start) :] for p in list(self.nodes) if p.startswith(start) and "/" not in p[len(start) :] and p != "/"
        )
        return sorted(names)

    def walk(self, path: str) -> Iterator[tuple[str, Node]]:
        """The node and everything below it, in order of names; links are not followed."""
        node = self.get(path, follow=False)
        yield path, node
        if node.kind == "dir":
            for name in self.listdir(path):
                yield from self.walk(posixpath.join(path, name))

    def glob(self, pattern: str) -> list[str]:
        """Paths that match a shell pattern (`*`, `?`, `[…]`; a leading dot must be written)."""
        found = ["/"]
        for part in [p for p in pattern.split("/") if p]:
            step: list[str] = []
            for base in found:
                if not any(c in part for c in "*?["):
                    if self.find(posixpath.join(base, part), follow=False) is not None:
                        step.append(posixpath.join(base, part))
                elif self.is_dir(base):
                    names = [n for n in self.listdir(base) if fnmatch.fnmatchcase(n, part)]
                    step += [posixpath.join(base, n) for n in names if part.startswith(".") or not n.startswith(".")]
            found = step
        return found

    # -- content

    def read(self, path: str, start: int = 0, count: int | None = None) -> bytes:
        """Bytes of a file (big files read as zeros beyond what is kept; at most 256 MiB at once)."""
        node = self.get(path)
        if node.kind == "dir":
            raise error(errno.EISDIR, path)
        if node.kind == "char":
            return bytes(1 << 20 if count is None else min(count, 1 << 20)) if node.device in ENDLESS else b""
        end = node.size if count is None else min(node.size, start + count)
        end = min(end, start + (256 << 20))
        known = node.data[start:end]
        return known + bytes(max(0, end - start - len(known)))

    def text(self, path: str) -> str:
        return self.read(path).decode("utf-8", "replace")

    def write(self, path: str, data: bytes | str, *, append: bool = False, mode: int = 0o644) -> None:
        """Write a file; the directory must exist. Raises ENOSPC when the disk is full."""
        raw = data.encode() if isinstance(data, str) else data
        real = self.resolve(path)
        for prefix, view in self.views.items():
            if real.startswith(prefix + "/"):
                view.write(real, raw)
                return
        self._parent(real, path)
        node = self.nodes.get(real)
        if node is not None and node.kind == "dir":
            raise error(errno.EISDIR, path)
        if node is not None and node.kind == "char":
            return
        if len(raw) > self.free(real):
            raise error(errno.ENOSPC, path)
        if node is None:
            node = self.nodes[real] = Node(mode=mode)
        node.data = node.data[: node.size] + raw if append else raw
        node.size = len(node.data) if not append else node.size + len(raw)
        node.sha256, node.allocated, node.mtime = "", None, self.now()

    def put(self, path: str, node: Node) -> None:
        """Place a ready-made node (big files, programs, devices), making its directories."""
        real = self.resolve_parent(path, make=True)
        if not node.mtime:
            node.mtime = self.now()
        self.nodes[real] = node

    def resolve_parent(self, path: str, *, make: bool = False) -> str:
        head, tail = posixpath.split(posixpath.normpath(path))
        if make:
            self.mkdir(head, parents=True)
        return posixpath.join(self.resolve(head), tail)

    # -- tree

    def _parent(self, real: str, path: str) -> None:
        node = self._raw(posixpath.dirname(real))
        if node is None:
            raise error(errno.ENOENT, path)
        if node.kind != "dir":
            raise error(errno.ENOTDIR, path)

    def mkdir(self, path: str, *, parents: bool = False, mode: int = 0o755) -> None:
        if parents:
            head = posixpath.dirname(posixpath.normpath(path))
            if head != posixpath.normpath(path):
                self.mkdir(head, parents=True)
            if self.is_dir(path):
                return
        real = self.resolve(path)
        if self._raw(real) is not None:
            raise error(errno.EEXIST, path)
        self._parent(real, path)
        self.nodes[real] = Node("dir", mode, self.now())

    def symlink(self, target: str, path: str) -> None:
        real = self.resolve_parent(path)
        if self._raw(real) is not None:
            raise error(errno.EEXIST, path)
        self._parent(real, path)
        self.nodes[real] = Node("link", 0o777, self.now(), target=target, size=len(target))

    def unlink(self, path: str) -> None:
        real = self.resolve(path, last=False)
        node = self._raw(real)
        if node is None:
            raise error(errno.ENOENT, path)
        if node.kind == "dir":
            raise error(errno.EISDIR, path)
        if real not in self.nodes:
            raise error(errno.EPERM, path)
        del self.nodes[real]

    def rmdir(self, path: str) -> None:
        real = self.resolve(path, last=False)
        node = self._raw(real)
        if node is None:
            raise error(errno.ENOENT, path)
        if node.kind != "dir":
            raise error(errno.ENOTDIR, path)
        if self.listdir(real):
            raise error(errno.ENOTEMPTY, path)
        if real not in self.nodes:
            raise error(errno.EPERM, path)
        del self.nodes[real]

    def remove_tree(self, path: str) -> None:
        for at, node in sorted(self.walk(path), key=lambda item: -len(item[0])):
            if node.kind == "dir":
                self.rmdir(at)
            else:
                self.unlink(at)

    def rename(self, old: str, new: str) -> None:
        """Rename a file or a whole directory, replacing a file (or an empty directory) of the new name."""
        source, target = self.resolve(old, last=False), self.resolve_parent(new)
        node = self.get(old, follow=False)
        self._parent(target, new)
        if target == source:
            return
        if target.startswith(source + "/"):
            raise error(errno.EINVAL, new)
        there = self._raw(target)
        if there is not None and there.kind == "dir":
            if node.kind != "dir":
                raise error(errno.EISDIR, new)
            if self.listdir(target):
                raise error(errno.ENOTEMPTY, new)
        below = [p for p in list(self.nodes) if p == source or p.startswith(source + "/")]
        for path in below:
            self.nodes[target + path[len(source) :]] = self.nodes.pop(path)

    # -- space

    def disk(self, path: str) -> Disk | None:
        """The file system that holds a path (the longest mount point)."""
        real = posixpath.normpath(path)
        under = [
            d for d in self.disks if d.mount == "/" or real == d.mount or real.startswith(d.mount.rstrip("/") + "/")
        ]
        return max(under, key=lambda d: len(d.mount), default=None)

    def used(self, disk: Disk) -> int:
        """Bytes used on a file system: what we know, and what was there before."""
        return disk.base_used + sum(on_disk(n) for p, n in list(self.nodes.items()) if self.disk(p) is disk)

    def free(self, path: str) -> int:
        disk = self.disk(path)
        return (1 << 62) if disk is None else max(0, disk.size - self.used(disk))
