"""`uv`: `venv`, `pip install|sync|list|show|freeze`, `--version`; the version of the uv on a host decides what it
resolves.
"""

from __future__ import annotations

import posixpath

from opsagent_lab.engine import distributions, venvs
from opsagent_lab.engine.distributions import NoSolution
from opsagent_lab.program import Exit, Process, Registry
from opsagent_lab.programs.options import read_words

_TAKES = {
    "--python", "-p", "-r", "--requirement", "--requirements", "--prerelease", "--index-url", "--extra-index-url", "--index",
    "--default-index", "-i", "--link-mode", "--torch-backend", "--cache-dir", "--constraint", "-c", "--index-strategy",
    "--prompt",
    "--python-platform", "--python-version", "--only-binary", "--no-binary", "--format", "--seed-packages",
}  # fmt: skip
_SWITCHES = {
    "--require-hashes", "--no-deps", "--upgrade", "-U", "--system", "--quiet", "-q", "--verbose", "-v", "--no-progress",
    "--seed",
    "--clear", "--offline", "--no-cache", "--strict", "--pre", "--reinstall", "--no-config", "--managed-python",
    "--no-managed-python", "--allow-existing", "--no-color", "--native-tls", "--system-certs", "--verify-hashes",
    "--compile-bytecode", "--no-build", "--relocatable",
}  # fmt: skip
PYTHONS = {"3.10": "3.10.12", "3.11": "3.11.2", "3.12": "3.12.3", "3.13": "3.13.1"}


def version_of(process: Process) -> str:
    """The uv that this executable is: of its environment, or what the host's own says."""
    _prefix, venv = venvs.of(process)
    own = venvs.version(venv, "uv")
    settings = process.world.settings.get("uv", {})
    return own or str(process.host.extras.get("uv") or settings.get("version") or "0.13.9")


def system_python(process: Process) -> str:
    return str(process.host.extras.get("python") or ("3.12.3" if process.host.os_id == "ubuntu" else "3.11.2"))


def uv(process: Process) -> int:
    args = [
        a for a in process.args if a not in ("--quiet", "-q", "--no-progress", "--no-config", "--offline", "--no-color")
    ]
    if args[:1] in (["--version"], ["-V"], ["version"], ["self"]):
        process.write_out(f"uv {version_of(process)} (x86_64-unknown-linux-gnu)\n")
        return 0
    if args[:1] == ["venv"]:
        return _venv(process, *_options(process, args[1:]))
    if args[:1] == ["pip"] and args[1:2]:
        verbs = {"install": _install, "sync": _install, "list": _list, "freeze": _list, "show": _show, "check": _check}
        verb = verbs.get(args[1])
        if verb is not None:
            return verb(process, *_options(process, args[2:]))
    word = " ".join(args[:1]) or ""
    process.write_err(
        f"error: unrecognized subcommand '{word}'\n\nUsage: uv [OPTIONS] <COMMAND>\n\nFor more information, try '--help'.\n"
    )
    return 2


def _options(process: Process, args: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    refusal = (
        "error: unexpected argument '{word}' found\n\nUsage: uv [OPTIONS] <COMMAND>\n\nFor more "
        "information, try '--help'.\n"
    )
    return read_words(process, args, takes=_TAKES, switches=_SWITCHES, refusal=refusal)


def _python_of(process: Process, given: dict[str, list[str]]) -> str:
    asked = (given.get("--python") or given.get("-p") or [""])[-1]
    if asked.startswith("/") or not asked:
        return system_python(process)
    short = ".".join(asked.split(".")[:2])
    return asked if asked.count(".") == 2 else PYTHONS.get(short, f"{short}.0")


def _venv(process: Process, given: dict[str, list[str]], words: list[str]) -> int:
    prefix = process.path(words[0] if words else ".venv")
    python = _python_of(process, given)
    if process.files.exists(f"{prefix}/pyvenv.cfg") and "--clear" not in given and "--allow-existing" not in given:
        process.write_err(
            "error: Failed to create virtual environment\n"
            f"  Caused by: A virtual environment already exists at: {prefix}\n\n"
            "hint: Use the `--clear` flag or set `UV_VENV_CLEAR=1` to replace the existing virtual environment\n"
        )
        return 2
    if "--clear" in given and process.files.is_dir(prefix):
        process.files.remove_tree(prefix)
    process.sleep(1.0)
    short = ".".join(python.split(".")[:2])
    process.write_err(
        f"Using CPython {python} interpreter at: /usr/bin/python{short}\nCreating virtual environment at: {prefix}\n"
        f"Activate with: source {prefix}/bin/activate\n"
    )
    distributions.create(process, prefix, python, pip="--seed" in given)
    return 0


def _prefix(process: Process, given: dict[str, list[str]]) -> str:
    """The environment to act on. Raises Exit as uv does without one."""
    asked = (given.get("--python") or given.get("-p") or [""])[-1]
    if asked.startswith("/") or asked.startswith("."):
        path = process.path(asked)
        prefix = path if process.files.is_dir(path) else venvs.prefix_of(path)
    else:
        prefix = process.env.get("VIRTUAL_ENV") or process.path(".venv")
    if posixpath.normpath(prefix) not in process.host.venvs or not process.files.exists(f"{prefix}/pyvenv.cfg"):
        if asked:
            process.write_err(f"error: No virtual environment or system Python installation found for path `{asked}`\n")
        else:
            process.write_err(
                "error: No virtual environment found; run `uv venv` to create an environment, or pass `--system` to install "
                "into a non-virtual environment\n"
            )
        raise Exit(2)
    return posixpath.normpath(prefix)


def requirements(process: Process, given: dict[str, list[str]], words: list[str]) -> tuple[list[str], dict[str, str]]:
    """(what was asked for by name, what files pin)."""
    pins: dict[str, str] = {}
    for path in [p for key in ("-r", "--requirement", "--requirements") for p in given.get(key, [])]:
        if not process.files.exists(process.path(path)):
            process.write_err(f"error: File not found: `{path}`\n")
            raise Exit(2)
        text = process.files.text(process.path(path))
        if "--require-hashes" in given and "--hash=sha256:" not in text:
            process.write_err(
                "error: In `--require-hashes` mode, all requirements must have a hash, but there were no hashes provided\n"
            )
            raise Exit(2)
        pins |= distributions.pinned(text)
    return words, pins


def _install(process: Process, given: dict[str, list[str]], words: list[str]) -> int:
    prefix = _prefix(process, given)
    venv = process.host.venvs[prefix]
    if process.world.settings.get("uv", {}).get("offline"):
        process.write_err(
            "error: Request failed after 3 retries\n  Caused by: Failed to fetch: `https://pypi.org/simple/sglang/`\n"
            "  Caused by: error sending request for url (https://pypi.org/simple/sglang/)\n  Caused by: dns error\n"
        )
        return 2
    # `uv pip sync FILE` names files, not packages
    files = [w for w in words if w.endswith(".txt") or process.files.exists(process.path(w))]
    if files:
        given.setdefault("-r", []).extend(files)
        words = [w for w in words if w not in files]
    asked, pins = requirements(process, given, words)
    allowed = "--pre" in given or "allow" in given.get("--prerelease", [])
    process.write_err(f"Using Python {venv.python} environment at: {prefix}\n")
    process.sleep(2.0)
    try:
        chosen = distributions.resolve(asked, uv=version_of(process), prerelease=allowed, python=venv.python) | pins
    except NoSolution as problem:
        process.write_err(str(problem))
        return 1
    return put(process, prefix, chosen, asked)


def put(process: Process, prefix: str, chosen: dict[str, str], asked: list[str]) -> int:
    """Download and install what was resolved, with uv's summary."""
    if not distributions.wheel_fits(process.host.glibc, chosen):
        version = chosen["sglang"]
        process.write_err(
            "error: No solution found when resolving dependencies\n"
            f"cause: Because sglang=={version} has no wheels with a matching platform tag (e.g., "
            "manylinux_2_28_x86_64) and you "
            f"require sglang=={version}, we can conclude that your requirements are unsatisfiable.\n"
            f"hint: Wheels are available for sglang (v{version}) on the following platforms: manylinux_2_34_aarch64, "
            "manylinux_2_34_x86_64\n"
        )
        return 1
    count = max(len(chosen), distributions.COUNTS.get(chosen.get("sglang", ""), 0))
    process.write_err(f"Resolved {count} packages in 1.84s\n")
    seconds = 20 + distributions.size_of(chosen) / 2**20 / 90
    for _ in range(10):
        process.sleep(seconds / 10)
    process.write_err(f"Prepared {count} packages in {int(seconds) // 60}m {int(seconds) % 60:02d}s\n")
    try:
        new = distributions.install(process, prefix, chosen)
    except OSError as problem:
        process.write_err(
            f"error: Failed to install: torch-{chosen.get('torch', '0')}-cp312-cp312-manylinux_2_28_x86_64.whl\n"
            f"  Caused by: failed to copy file to {problem.filename}: No space left on device (os error 28)\n"
        )
        return 1
    process.write_err(f"Installed {count} packages in 2.31s\n" + "".join(f" + {item}\n" for item in new))
    return 0


def _list(process: Process, given: dict[str, list[str]], _words: list[str]) -> int:
    packages = process.host.venvs[_prefix(process, given)].packages
    process.write_out("Package Version\n------- -------\n" + "".join(f"{n} {v}\n" for n, v in sorted(packages.items())))
    return 0


def _show(process: Process, given: dict[str, list[str]], words: list[str]) -> int:
    prefix = _prefix(process, given)
    venv = process.host.venvs[prefix]
    found = False
    for word in words:
        version = venvs.version(venv, word)
        if not version:
            process.write_err(f"warning: Package(s) not found for: {word}\n")
            continue
        found = True
        process.write_out(f"Name: {venvs.name_of(word)}\nVersion: {version}\nLocation: {venvs.site(prefix, venv)}\n")
    return 0 if found else 1


def _check(process: Process, given: dict[str, list[str]], _words: list[str]) -> int:
    packages = process.host.venvs[_prefix(process, given)].packages
    process.write_err(f"Checked {len(packages)} packages in 3ms\nAll installed packages are compatible\n")
    return 0


PROGRAMS: Registry = {"uv": uv}
