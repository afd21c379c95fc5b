"""Model repositories that exist in the lab: their files with real names and sizes, and how they get onto a host."""

from __future__ import annotations

import hashlib
import json
import posixpath
from dataclasses import dataclass
from functools import cache
from importlib.resources import files as resources
from typing import Any

from opsagent_lab.engine import checkpoint
from opsagent_lab.engine.shape import read_shape
from opsagent_lab.files import Files
from opsagent_lab.state import Node

_REPOS = {
    "Qwen/Qwen3.6-27B": ("qwen3.6-27b", 15),
    "Qwen/Qwen3.6-27B-FP8": ("qwen3.6-27b-fp8", 8),
    "Qwen/Qwen3.5-9B": ("qwen3.5-9b", 4),
    "Qwen/Qwen3-8B": ("qwen3-8b", 5),
    "Qwen/Qwen3-30B-A3B": ("qwen3-30b-a3b", 16),
    "Qwen/Qwen3-Next-80B-A3B-Instruct": ("qwen3-next-80b", 41),
    "Qwen/Qwen3-32B": ("qwen3-32b", 17),
}
"""Repository → (config of the data folder, number of shards)."""

_TEMPLATE = (
    "{%- for message in messages %}<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n{%- endfor %}\n"
    "{%- if add_generation_prompt %}<|im_start|>assistant\n{%- if enable_thinking is defined and enable_thinking is false %}"
    "<think>\n\n</think>\n\n{%- else %}<think>\n{%- endif %}{%- endif %}\n"
)


@dataclass(frozen=True, slots=True)
class RepoFile:
    """One file of a repository. `data` is the whole content, or for a big file its beginning."""

    name: str
    size: int
    sha256: str
    data: bytes
    lfs: bool = False


def _small(name: str, content: str | dict[str, Any]) -> RepoFile:
    text = content if isinstance(content, str) else json.dumps(content, indent=2) + "\n"
    data = text.encode()
    return RepoFile(name, len(data), hashlib.sha256(data).hexdigest(), data)


def _big(name: str, size: int, head: bytes = b"") -> RepoFile:
    return RepoFile(name, size, hashlib.sha256(name.encode() + head + str(size).encode()).hexdigest(), head, lfs=True)


def find(repo: str) -> str | None:
    """The exact name of a repository (the hub ignores case)."""
    return next((name for name in _REPOS if name.lower() == repo.lower()), None)


def config_of(repo: str) -> dict[str, Any]:
    text = (resources("opsagent_lab.engine") / "data" / "models" / f"{_REPOS[repo][0]}.json").read_text(
        encoding="utf-8"
    )
    value: dict[str, Any] = json.loads(text)
    return value


@cache
def files_of(repo: str) -> tuple[RepoFile, ...]:
    """Every file of a repository, weights last."""
    config = config_of(repo)
    shape = read_shape(config)
    weights = checkpoint.shards(shape, _REPOS[repo][1])
    context = shape.max_context
    out = [
        _small(".gitattributes", "*.safetensors filter=lfs diff=lfs merge=lfs -text\n"),
        _small(
            "README.md", f"---\nlicense: apache-2.0\npipeline_tag: text-generation\n---\n# {repo.partition('/')[2]}\n"
        ),
        _small("config.json", config),
        _small(
            "generation_config.json",
            {"do_sample": True, "eos_token_id": [248046, 248044], "temperature": 0.6, "top_p": 0.95},
        ),
        _small("tokenizer_config.json", {"tokenizer_class": "Qwen2Tokenizer", "model_max_length": context}),
        _small("chat_template.jinja", _TEMPLATE),
        _small("merges.txt", "#version: 0.2\n"),
        _big("tokenizer.json", 12_807_982, b'{"version": "1.0", "truncation": null, "padding": null, '),
        _small("vocab.json", {"!": 0}),
    ]
    if shape.vision:
        kind = {"image_processor_type": "Qwen2VLImageProcessorFast", "patch_size": 16, "merge_size": 2}
        out += [_small("preprocessor_config.json", kind), _small("video_preprocessor_config.json", kind)]
    if len(weights) > 1:
        out.append(_small("model.safetensors.index.json", checkpoint.index(weights)))
    out += [RepoFile(f.name, f.size, f.sha256, f.header, lfs=True) for f in weights]
    return tuple(out)


def commit_of(repo: str) -> str:
    return hashlib.sha1(repo.encode()).hexdigest()


def node_of(file: RepoFile, repo: str, *, size: int | None = None) -> Node:
    """The file as a node; `size` less than the whole makes it a truncated one."""
    have = file.size if size is None else min(size, file.size)
    whole = have == file.size
    digest = file.sha256 if whole else hashlib.sha256(f"{file.sha256}:{have}".encode()).hexdigest()
    notes = {"repo": repo, "full": str(file.size)} if file.lfs else {}
    return Node(data=file.data[:have], size=have, sha256=digest if file.lfs else "", notes=notes)


def place(
    files: Files, folder: str, repo: str, *, missing: tuple[str, ...] = (), truncated: tuple[str, ...] = ()
) -> None:
    """Put a whole repository into a folder of a host (a finished download), damaged as asked for."""
    files.mkdir(folder, parents=True)
    for file in files_of(repo):
        if file.name in missing:
            continue
        size = file.size // 3 if file.name in truncated else None
        files.put(posixpath.join(folder, file.name), node_of(file, repo, size=size))
