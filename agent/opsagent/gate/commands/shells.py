"""Shells and their builtins. Free shell text is R3, whatever it says; it is read only to find what must be refused."""

from __future__ import annotations

import re
import shlex

from opsagent.gate.argv import Checker, check, known, operators
from opsagent.gate.guards import paths
from opsagent.gate.trace import Trace
from opsagent.gate.words import words as word_list

FETCHERS = word_list("argv", "fetchers")
FETCH = re.compile(r"\b(curl|wget2?|fetch|aria2c|axel|lynx|lwp-request|GET|nc|ncat|socat|ftp|tftp)\b")
JOIN = re.compile(r"\||>|&&|;|\n")
RUNNER = re.compile(
    r"\b(ba|da|z|k|a|c|tc|fi)?sh\b|\bpython[0-9.]*\b|\bperl\b|\bruby\b|\bnode\b|\bphp\b|\bsource\b|\beval\b|(^|[\s;&|])\.\s|"
    r"\bchmod\b[^;&|]{0,80}\+?x"
)
FED = re.compile(r"(\$\(|`|<\(|<<<)[^)`]{0,200}\b(curl|wget2?|fetch|aria2c|nc|ncat)\b")
RUN_OUTPUT = re.compile(r"(^|[;&|\n({]\s*)\"?(\$\(|`)\s*(sudo\s+)?(curl|wget2?|fetch|aria2c|nc|ncat)\b")
FETCHES = re.compile(
    r"https?://|urlopen|urlretrieve|requests\.|httpx|http\.client|LWP|Net::HTTP|open-uri|file_get_contents\(.http|socket|\b(curl|wget)\b"
)
RUNS = re.compile(r"\b(exec|eval|system|popen|subprocess|spawn|execSync|compile|qx|__import__|runpy|instance_eval)\b|`")
SUBSTITUTION = re.compile(r"\$\(([^()]*)\)|`([^`]*)`|[<>]\(([^()]*)\)")
KEYWORDS = word_list("argv", "keywords")


LONGEST = 8000
"""Characters of opaque code that are searched; it is R3 in any case."""


def fetches_and_runs(code: str) -> bool:
    """Whether text fetches, then (behind a pipe, a redirection or a separator) runs; or runs what a substitution fetches.

    The first of each is enough: what comes first leaves most room for the next. Linear, whatever the text.
    """
    fetch = FETCH.search(code)
    join = JOIN.search(code, fetch.end()) if fetch else None
    if join is not None and RUNNER.search(code, join.end()):
        return True
    runner = RUNNER.search(code)
    return (runner is not None and FED.search(code, runner.end()) is not None) or RUN_OUTPUT.search(code) is not None


def fetched(t: Trace) -> bool:
    """Whether a stage before this one brings something from elsewhere."""
    return any(
        word.rsplit("/", 1)[-1] in FETCHERS or FETCHES.search(word) for stage in t.upstream for word in stage[:6]
    )


LITERAL = re.compile(r"""(["'`])((?:\\.|(?!\1).)*)\1""", re.DOTALL)


def opaque(code: str, t: Trace) -> None:
    """Code of any language that we do not follow: R3, and refused when it fetches what it runs or names secrets."""
    code = code[:LONGEST]
    paths.mentions(t, code)
    if fetches_and_runs(code) or (FETCHES.search(code) and RUNS.search(code)):
        t.say("X", "fetch-and-execute", "runs what it fetches")
    if fetched(t) and RUNS.search(code):
        t.say("X", "fetch-and-execute", "runs what the stage before it fetches")
    t.say("R3", "code.opaque", "runs code that we do not follow")
    for _quote, literal in LITERAL.findall(code):
        _commands(literal, t)


def text(code: str, t: Trace) -> None:
    """Shell text: opaque, hence R3; what in it is refused in any form is refused here too."""
    t.say("R3", "shell.free", "runs shell text")
    code = code[:LONGEST]
    paths.mentions(t, code)
    if fetches_and_runs(code):
        t.say("X", "fetch-and-execute", "runs what it fetches")
    for found in SUBSTITUTION.finditer(code):
        _commands(next(group for group in found.groups() if group is not None), t)
    _commands(code, t)


def _commands(code: str, t: Trace) -> None:
    lexer = shlex.shlex(code, posix=True, punctuation_chars=";&|<>()\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = " \t\r", True, ""
    try:
        words = list(lexer)
    except ValueError:
        return
    stage: list[str] = []
    before: list[tuple[str, ...]] = []
    outer = t.upstream
    for word in [*words, ";"]:
        if not re.fullmatch(r"[;&|<>()\n]+", word):
            stage.append(word)
            continue
        if "<" in word or ">" in word:
            stage.append(word)
            continue
        _one(stage, t, outer + tuple(before))
        before = [*before, tuple(stage)] if word == "|" else []
        stage = []
    t.upstream = outer


def _one(stage: list[str], t: Trace, upstream: tuple[tuple[str, ...], ...]) -> None:
    words = list(stage)
    while words and (words[0] in KEYWORDS or re.fullmatch(r"[A-Za-z_]\w*=.*", words[0], re.DOTALL)):
        words.pop(0)
    argv: list[str] = []
    while words:
        word = words.pop(0)
        if re.fullmatch(r"[0-9]*[<>&|]+", word) and words:
            target = words.pop(0)
            if ">" in word:
                paths.write(t, target)
            elif "<<" not in word:
                paths.read(t, target)
        else:
            argv.append(word)
    if argv and known(argv[0]):
        t.upstream = upstream
        check(argv, t)


def shell(argv: tuple[str, ...], t: Trace) -> None:
    """sh, bash …: `-c TEXT`, a script, or code from standard input."""
    words = list(argv[1:])
    codes: list[str] = []
    script = ""
    while words:
        word = words.pop(0)
        if word in ("--rcfile", "--init-file", "-O", "+O", "-o", "+o") and words:
            words.pop(0)
        elif re.fullmatch(r"-[a-zA-Z]*c[a-zA-Z]*", word) or word in ("--command", "-Command", "-EncodedCommand"):
            codes = words[:1]
            break
        elif word in ("-", "--", "-s") or not word.startswith(("-", "+")):
            script = word if word not in ("--", "-s") else (words[:1] or ["-"])[0]
            break
    if fetched(t):
        t.say("X", "fetch-and-execute", f"{argv[0]} runs what the stage before it fetches")
    if codes:
        text(codes[0], t)
    elif script and script not in ("-", "/dev/stdin"):
        if paths.SHELLISH.search(script) or "<(" in script:
            text(f"bash {script}", t)
        paths.read(t, script)
        t.fact(f"sha:{paths.normal(script)}", f"the content of {script} is not known")
        t.say("R3", "script.opaque", f"runs the script {script}, which we did not read")
    else:
        if t.stdin is not None and not t.upstream:
            text(t.stdin, t)
        t.say("R3", "shell.stdin", f"{argv[0]} runs what it reads")


def evaluate(argv: tuple[str, ...], t: Trace) -> None:
    if fetched(t):
        t.say("X", "fetch-and-execute", f"{argv[0]} may run what the stage before it fetches")
    text(" ".join(argv[1:]), t)
    t.say("R3", "shell.free", "the remote shell would run this text")


def source(argv: tuple[str, ...], t: Trace) -> None:
    if fetched(t):
        t.say("X", "fetch-and-execute", "runs what the stage before it fetches")
    for each in argv[1:2]:
        paths.read(t, each)
        text(f"source {each}", t)
    t.say("R3", "script.opaque", "runs a script in the remote shell")


def quiet(argv: tuple[str, ...], t: Trace) -> None:
    operators([word for word in argv[1:] if word not in ("<", ">")], t)
    t.say("R0", "read", f"{argv[0]} changes nothing that lasts")


def export(argv: tuple[str, ...], t: Trace) -> None:
    from opsagent.gate.guards import variables

    for word in argv[1:]:
        if "=" in word:
            name, _, value = word.partition("=")
            variables.assign(t, name, value)
    t.say("R0", "read", "lasts no longer than the call")


SHELLS = ("sh", "bash", "dash", "zsh", "ksh", "ash", "fish", "rbash", "mksh", "csh", "tcsh", "pwsh")
COMMANDS: dict[str, Checker] = {
    **dict.fromkeys(SHELLS, shell), "eval": evaluate, "trap": evaluate, "alias": evaluate, "source": source, ".": source,
    **dict.fromkeys(("cd", "umask", "ulimit", "wait", "read", "shift", "hash", "type", "test", "[", "unset", ":"), quiet),
    "export": export, "set": quiet,
}  # fmt: skip
