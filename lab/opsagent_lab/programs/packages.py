"""`pip` and `python -m venv`."""

from __future__ import annotations

from opsagent_lab.engine import distributions, venvs
from opsagent_lab.engine.distributions import NoSolution
from opsagent_lab.program import Process, Registry
from opsagent_lab.programs import uv as uv_program
from opsagent_lab.programs.options import read_words

_TAKES = ("-r", "--requirement", "-i", "--index-url", "--extra-index-url", "-c", "--constraint", "--cache-dir", "--target",
          "--retries", "--timeout", "--only-binary", "--progress-bar", "--format", "--python")  # fmt: skip
_SWITCHES = ("-q", "--quiet", "-U", "--upgrade", "--require-hashes", "--no-deps", "--no-cache-dir", "--pre", "-y", "--user",
             "--disable-pip-version-check", "--no-input", "--force-reinstall", "--break-system-packages", "-v")  # fmt: skip


def pip(process: Process) -> int:
    return pip_module(process, process.args)


def pip_module(process: Process, args: list[str]) -> int:
    """pip of the environment that the running program belongs to."""
    prefix, venv = venvs.of(process)
    if args[:1] in (["--version"], ["-V"]):
        short = ".".join(venv.python.split(".")[:2])
        process.write_out(
            f"pip {venvs.version(venv, 'pip') or '26.1'} from {venvs.site(prefix, venv)}/pip (python {short})\n"
        )
        return 0
    verb, rest = (args[0], args[1:]) if args else ("", [])
    given, words = _options(process, rest)
    if verb == "install":
        return _install(process, prefix, given, words)
    if verb in ("list", "freeze"):
        form = "{n}=={v}\n" if verb == "freeze" else "{n} {v}\n"
        head = "" if verb == "freeze" else "Package Version\n------- -------\n"
        process.write_out(head + "".join(form.format(n=n, v=v) for n, v in sorted(venv.packages.items())))
        return 0
    if verb == "show":
        return _show(process, prefix, words)
    if verb == "check":
        process.write_out("No broken requirements found.\n")
        return 0
    process.write_err(f'ERROR: unknown command "{verb}"\n')
    return 1


def _options(process: Process, args: list[str]) -> tuple[dict[str, list[str]], list[str]]:
    refusal = "\nUsage:   \n  pip <command> [options]\n\nno such option: {word}\n"
    return read_words(process, args, takes=_TAKES, switches=_SWITCHES, refusal=refusal)


def _install(process: Process, prefix: str, given: dict[str, list[str]], words: list[str]) -> int:
    venv = process.host.venvs.get(prefix)
    if venv is None:
        process.write_err(
            "error: externally-managed-environment\n\n× This environment is externally managed\n╰─> To "
            "install Python packages "
            "system-wide, try apt install\n    python3-xyz, where xyz is the package you are trying to\n    install.\n"
        )
        return 1
    asked, pins = uv_program.requirements(process, given, words)
    process.sleep(4.0)
    try:
        chosen = distributions.resolve(asked, uv=None, prerelease="--pre" in given, python=venv.python) | pins
    except NoSolution as problem:
        process.write_err(str(problem))
        return 1
    if not distributions.wheel_fits(process.host.glibc, chosen):
        process.write_err(
            f"ERROR: Could not find a version that satisfies the requirement sglang=={chosen['sglang']} "
            "(from versions: 0.5.9, "
            f"0.5.10)\nERROR: No matching distribution found for sglang=={chosen['sglang']}\n"
        )
        return 1
    seconds = 30 + distributions.size_of(chosen) / 2**20 / 60
    for _ in range(10):
        process.sleep(seconds / 10)
    try:
        new = distributions.install(process, prefix, chosen)
    except OSError:
        process.write_err("ERROR: Could not install packages due to an OSError: [Errno 28] No space left on device\n\n")
        return 1
    if "-q" not in given and "--quiet" not in given:
        process.write_out("Successfully installed " + " ".join(item.replace("==", "-") for item in new) + "\n")
    return 0


def _show(process: Process, prefix: str, words: list[str]) -> int:
    _, venv = venvs.of(process)
    missing = [w for w in words if not venvs.version(venv, w)]
    found = [w for w in words if w not in missing]
    blocks = [
        f"Name: {venvs.name_of(w)}\nVersion: {venvs.version(venv, w)}\nLocation: {venvs.site(prefix, venv)}\n"
        for w in found
    ]
    process.write_out("---\n".join(blocks))
    if missing:
        process.write_err(f"WARNING: Package(s) not found: {', '.join(missing)}\n")
    return 0 if found else 1


def make_venv(process: Process, args: list[str]) -> int:
    """`python -m venv [--clear] DIR`."""
    words = [a for a in args if not a.startswith("-")]
    if not words:
        process.write_err(
            "usage: venv [-h] ENV_DIR [ENV_DIR ...]\nvenv: error: the following arguments are required: ENV_DIR\n"
        )
        return 2
    _, venv = venvs.of(process)
    process.sleep(3.0)
    for word in words:
        python = venv.python if process.host.venvs.get(venvs.of(process)[0]) else uv_program.system_python(process)
        distributions.create(process, process.path(word), python, pip="--without-pip" not in args)
    return 0


PROGRAMS: Registry = {"pip": pip, "pip3": pip}
