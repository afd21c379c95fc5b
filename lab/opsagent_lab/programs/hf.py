"""`hf` and its deprecated `huggingface-cli`: download, cache verify, auth whoami, version, env; words of
huggingface_hub 1.33.
"""

from __future__ import annotations

import posixpath

from opsagent_lab.engine import catalogue, hub, venvs
from opsagent_lab.engine.hub import HubError, Wish
from opsagent_lab.files import digest
from opsagent_lab.program import Process, Registry
from opsagent_lab.programs.options import read_words

_TAKES = {
    "--revision", "--include", "--exclude", "--cache-dir", "--local-dir", "--token", "--max-workers", "--type",
    "--repo-type",
    "--format",
}  # fmt: skip
_SWITCHES = {
    "--force-download",
    "--dry-run",
    "-q",
    "--quiet",
    "--json",
    "--fail-on-missing-files",
    "--fail-on-extra-files",
}


def hf(process: Process) -> int:
    args = process.args
    if args[:1] in (["version"], ["--version"]):
        process.write_out(f"{library(process)}\n")
        return 0
    if args[:1] == ["download"]:
        return _download(process, args[1:])
    if args[:2] == ["cache", "verify"]:
        return _verify(process, args[2:])
    if args[:2] == ["auth", "whoami"]:
        return _whoami(process)
    if args[:1] == ["env"]:
        process.write_out(f"- huggingface_hub version: {library(process)}\n- Platform: Linux\n")
        return 0
    process.write_err("Usage: hf [OPTIONS] COMMAND [ARGS]...\nTry 'hf --help' for help.\n")
    return 2


def old_cli(process: Process) -> int:
    """`huggingface-cli` of the 1.x series: a warning, then the same."""
    if not library(process).startswith("0."):
        process.write_err("⚠️  Warning: 'huggingface-cli download' is deprecated. Use 'hf download' instead.\n")
    return hf(process)


def library(process: Process) -> str:
    """The version of huggingface_hub that runs."""
    return venvs.version(venvs.of(process)[1], "huggingface-hub") or "1.33.0"


def resumes(version: str) -> bool:
    """Whether that huggingface_hub goes on in a partial file."""
    return tuple(int(p) for p in version.split(".")[:2]) < (1, 20)


def _options(process: Process, args: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    refusal = (
        "Usage: hf download [OPTIONS] REPO_ID [FILENAMES]...\nTry 'hf download --help' for help.\n\n"
        "Error: No such option: {word}\n"
    )
    return read_words(process, args, takes=_TAKES, switches=_SWITCHES, refusal=refusal, same={"--quiet": "-q"})


def wish_of(process: Process, given: dict[str, list[str]], words: list[str]) -> Wish:
    local = (given.get("--local-dir") or [""])[-1]
    home = process.env.get("HF_HOME") or posixpath.join(process.env.get("HOME", "/root"), ".cache/huggingface")
    cache = (given.get("--cache-dir") or [process.env.get("HF_HUB_CACHE") or posixpath.join(home, "hub")])[-1]
    return Wish(
        repo=catalogue.find(words[0]) or words[0],
        folder=process.path(local or cache),
        cache=not local,
        names=tuple(words[1:]),
        include=tuple(given.get("--include", [])),
        exclude=tuple(given.get("--exclude", [])),
        workers=int((given.get("--max-workers") or ["8"])[-1]),
        xet=process.env.get("HF_HUB_DISABLE_XET", "") not in ("1", "true", "TRUE", "yes", "ON"),
        resume=resumes(library(process)),
        force="--force-download" in given,
        token=(given.get("--token") or [process.env.get("HF_TOKEN", "")])[-1],
    )


def _download(process: Process, args: list[str]) -> int:
    given, words = _options(process, args)
    if not words:
        process.write_err("Usage: hf download [OPTIONS] REPO_ID [FILENAMES]...\n\nError: Missing argument 'REPO_ID'.\n")
        return 2
    if "--local-dir" in given and "--cache-dir" in given:
        process.write_err("Error: Cannot use both --local-dir and --cache-dir\n")
        return 2
    wish = wish_of(process, given, words)
    if given.get("--token"):
        process.write_err(
            "Warning: `--token <value>` leaves your token in your shell history and in process listings. "
            "Use `hf auth login` or the HF_TOKEN environment variable instead.\n"
        )
    try:
        if "--dry-run" in given:
            return _dry(process, wish)
        count = len(hub.listing(process, wish))
        process.write_err(f"Fetching {count} files\n")
        hub.fetch(process, wish)
    except HubError as problem:
        return _failed(process, wish, problem)
    except OSError as problem:
        process.write_err(
            "Not enough free disk space to download the file.\nTraceback (most recent call last):\n"
            f"OSError: [Errno 28] No space left on device: '{problem.filename}'\n"
        )
        return 1
    path = hub.snapshot(wish)
    process.write_out(f"{path}\n" if "-q" in given else f"✓ Downloaded\n  path: {path}\n")
    return 0


def _dry(process: Process, wish: Wish) -> int:
    files = hub.listing(process, wish)
    total = sum(f.size for f in files)
    process.write_out(
        f"[dry-run] Will download {len(files)} files (out of {len(files)}) totalling {_human(total)}.\nFILE SIZE\n"
        + "".join(f"{f.name} {_human(f.size)}\n" for f in files)
    )
    return 0


def _human(size: float) -> str:
    for unit in ("", "K", "M", "G"):
        if size < 1000:
            return f"{size:.1f}{unit}"
        size /= 1000
    return f"{size:.1f}T"


def _failed(process: Process, wish: Wish, problem: HubError) -> int:
    hint = "Hint: set HF_DEBUG=1 as environment variable for full traceback.\n"
    if problem.kind == "gated":
        process.write_err(f"Error: Access denied. Model '{wish.repo}' requires approval.\n{hint}")
    elif problem.kind == "missing-repo":
        process.write_err(
            f"Error: Model '{wish.repo}' not found.\nIf the repo is private, make sure you are "
            "authenticated and your token has "
            f"the right permissions.\nIf the repo does not exist, create it with: hf repos create {wish.repo}\n"
        )
    elif problem.kind == "missing-file":
        process.write_err(f"Error: File not found in model '{wish.repo}'.\nURL: {problem.message}\n")
    elif (
        problem.kind == "down"
        and not wish.cache
        and process.files.is_dir(wish.folder)
        and process.files.listdir(wish.folder)
    ):
        process.write_err(
            f"Returning existing local_dir `{wish.folder}` as remote repo cannot be accessed in `snapshot_download` "
            f"({problem.message}).\n"
        )
        process.write_out(f"✓ Downloaded\n  path: {wish.folder}\n")
        return 0
    elif problem.kind == "timeout":
        process.write_err(
            "Error while downloading from URL: timed out\nTrying to resume download...\nTraceback (most recent call last):\n"
            f"{problem.message}\n"
        )
    elif problem.kind == "consistency":
        process.write_err(f"Traceback (most recent call last):\nOSError: {problem.message}\n")
    else:
        process.write_err(f"Error: Local entry not found. {problem.message}\n")
    return 1


def _whoami(process: Process) -> int:
    if not process.env.get("HF_TOKEN"):
        process.write_out("Not logged in\n")
        return 1
    process.write_out("user:  operator\n")
    return 0


def _verify(process: Process, args: list[str]) -> int:
    given, words = _options(process, args)
    wish = wish_of(process, given, words)
    repo = catalogue.find(wish.repo)
    if repo is None:
        return _failed(process, wish, HubError("missing-repo", ""))
    bad, missing, seen = [], [], 0
    for file in catalogue.files_of(repo):
        node = process.files.find(hub.final_path(wish, file))
        if node is None:
            missing.append(file.name)
            continue
        seen += 1
        process.sleep(file.size / 1.2e9)
        if digest(node) != file.sha256:
            bad.append(f"  - {file.name}: expected {file.sha256} (sha256), got {digest(node)}\n")
    if bad:
        process.write_out("❌ Checksum verification failed for the following file(s):\n" + "".join(bad))
        return 1
    if missing and "--fail-on-missing-files" in given:
        process.write_out("❌ Missing file(s):\n" + "".join(f"  - {name}\n" for name in missing))
        return 1
    process.write_out(f"✓ Verified {seen} file(s) for model '{repo}'. All checksums match.\n")
    return 0


PROGRAMS: Registry = {"hf": hf, "huggingface-cli": old_cli}
