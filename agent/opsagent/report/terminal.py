"""The report on a terminal: the same Markdown, drawn by rich; plain Markdown when stdout is no terminal."""

from __future__ import annotations

import sys
from typing import TextIO

from opsagent.report.markdown import render
from opsagent.report.model import StatusReport


def show(report: StatusReport, out: TextIO | None = None) -> None:
    out = out or sys.stdout
    text = render(report)
    if not out.isatty():
        out.write(text)
        return
    from rich.console import Console
    from rich.markdown import Markdown

    Console(file=out).print(Markdown(text))
