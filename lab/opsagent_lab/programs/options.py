"""Reading options the GNU way: clusters, abbreviations, `--`, and the exact words for what is not an option."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from opsagent_lab.program import Exit, Process


@dataclass(frozen=True, slots=True)
class Options:
    """What was given: option letters or long names → values in order ('' for flags), and the operands."""

    given: dict[str, list[str]] = field(default_factory=dict)
    operands: list[str] = field(default_factory=list)

    def __contains__(self, name: object) -> bool:
        return name in self.given

    def last(self, name: str, default: str = "") -> str:
        return self.given[name][-1] if name in self.given else default


def usage(process: Process, text: str, code: int = 1) -> Exit:
    """Print a usage error in GNU words and give the Exit to raise."""
    process.write_err(f"{process.name}: {text}\nTry '{process.name} --help' for more information.\n")
    return Exit(code)


def read_words(
    process: Process, args: list[str], *, takes: Container[str], switches: Container[str], refusal: str,
    same: Mapping[str, str] | None = None,
) -> tuple[dict[str, list[str]], list[str]]:  # fmt: skip
    """Options as whole words, as uv, pip and hf read them: (option → values, operands).

    `takes` have a value (`--name value` or `--name=value`), `switches` none; `same` maps a spelling to the one that it is
    kept under. Any other option prints `refusal`, in which `{word}` stands for it, and ends the program with 2.
    """
    given: dict[str, list[str]] = {}
    words: list[str] = []
    todo = list(args)
    while todo:
        word = todo.pop(0)
        name, equals, value = word.partition("=")
        if name in takes:
            given.setdefault(name, []).append(value if equals else (todo.pop(0) if todo else ""))
        elif word in switches:
            given.setdefault((same or {}).get(word, word), []).append("")
        elif word.startswith("-"):
            process.write_err(refusal.replace("{word}", word))
            raise Exit(2)
        else:
            words.append(word)
    return given, words


def read(
    process: Process,
    flags: str = "",
    values: str = "",
    long: dict[str, str] | None = None,
    *,
    code: int = 1,
    intermixed: bool = True,
    args: list[str] | None = None,
) -> Options:
    """Read the arguments. `flags` and `values` are letters without and with a value.

    `long` maps a long option to the letter (or name) it is kept under; a name that ends in `=` takes a value, one that ends
    in `?` takes an optional value after `=`. Unknown options end the program with `code`.
    """
    table = long or {}
    out = Options()
    todo = list(process.args if args is None else args)
    while todo:
        item = todo.pop(0)
        if item == "--":
            out.operands.extend(todo)
            break
        if item.startswith("--"):
            _long(process, item, todo, table, out, code)
        elif item.startswith("-") and item != "-":
            _cluster(process, item[1:], todo, flags, values, out, code)
        else:
            out.operands.append(item)
            if not intermixed:
                out.operands.extend(todo)
                break
    return out


def _keep(out: Options, name: str, value: str) -> None:
    out.given.setdefault(name, []).append(value)


def _long(process: Process, item: str, todo: list[str], table: dict[str, str], out: Options, code: int) -> None:
    name, given, value = item[2:].partition("=")
    names = {key.rstrip("=?"): key for key in table}
    hits = [name] if name in names else [n for n in names if n.startswith(name)]
    targets = {table[names[hit]] for hit in hits}
    if not hits:
        raise usage(process, f"unrecognized option '--{name}'", code)
    if len(targets) > 1:
        options = " ".join(f"'--{hit}'" for hit in hits)
        raise usage(process, f"option '--{name}' is ambiguous; possibilities: {options}", code)
    key = names[hits[0]]
    if key.endswith("="):
        if not given:
            if not todo:
                raise usage(process, f"option '--{hits[0]}' requires an argument", code)
            value = todo.pop(0)
    elif given and not key.endswith("?"):
        raise usage(process, f"option '--{hits[0]}' doesn't allow an argument", code)
    _keep(out, table[key], value)


def _cluster(process: Process, letters: str, todo: list[str], flags: str, values: str, out: Options, code: int) -> None:
    at = 0
    while at < len(letters):
        letter = letters[at]
        at += 1
        if letter in values:
            if at < len(letters):
                _keep(out, letter, letters[at:])
            elif todo:
                _keep(out, letter, todo.pop(0))
            else:
                raise usage(process, f"option requires an argument -- '{letter}'", code)
            return
        if letter not in flags:
            raise usage(process, f"invalid option -- '{letter}'", code)
        _keep(out, letter, "")
