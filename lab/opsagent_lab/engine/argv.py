"""Reading SGLang's command line as its argparse does: prefixes, choices, types; usage errors leave with status 2."""

from __future__ import annotations

from collections.abc import Sequence

from opsagent_lab.engine.settings import Value

_ALIASES = {
    "tp": "tp_size", "tensor_parallel_size": "tp_size", "model": "model_path", "speculative_algo": "speculative_algorithm",
    "dp": "dp_size", "pp": "pp_size",
}  # fmt: skip


class Usage(Exception):
    """argparse ends the program: everything that it prints on stderr, status 2."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self.text = text


def read(version: str, argv: Sequence[str]) -> dict[str, Value]:
    """Typed flags by destination. Raises Usage."""
    out: dict[str, Value] = {}
    i = 0
    while i < len(argv):
        word = argv[i]
        if not word.startswith("--"):
            raise Usage(f"sglang serve: error: unrecognized arguments: {word}\n")
        name, equals, given = word[2:].partition("=")
        dest = name.replace("-", "_")
        dest = _ALIASES.get(dest, dest)
        i += 1
        if equals:
            out[dest] = given
        elif i < len(argv) and not argv[i].startswith("--"):
            out[dest] = argv[i]
            i += 1
        else:
            out[dest] = True
    return out
