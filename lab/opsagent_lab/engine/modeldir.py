"""A model directory of a simulated host, read the way SGLang reads it."""

from __future__ import annotations

import json
import posixpath
from typing import Any

from opsagent_lab.engine.launch import ModelDir, Shard
from opsagent_lab.files import Files
from opsagent_lab.state import Node

LFS = b"version https://git-lfs.github.com/spec/v1"


class NoModel(Exception):
    """There is no usable model there: exception name and words of the real one."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(message)
        self.kind, self.message = kind, message


def read_config(files: Files, path: str) -> dict[str, Any]:
    """config.json. Raises NoModel."""
    if not files.is_dir(path):
        if path.startswith("/"):
            raise NoModel(
                "huggingface_hub.errors.HFValidationError",
                f"Repo id must be in the form 'repo_name' or 'namespace/repo_name': '{path}'. "
                "Use `repo_type` argument if needed.",
            )
        raise NoModel(
            "OSError",
            "We couldn't connect to 'https://huggingface.co' to load the files, and couldn't find them in "
            "the cached files.\n"
            f"Check your internet connection or see how to run the library in offline mode at "
            f"'https://huggingface.co/docs/transformers/installation#offline-mode'. ({path})",
        )
    where = posixpath.join(path, "config.json")
    if not files.exists(where):
        raise NoModel("ValueError", f"Unrecognized model in {path}. Should have a `model_type` key in its config.json.")
    try:
        value = json.loads(files.text(where))
    except ValueError as problem:
        raise NoModel("OSError", f"It looks like the config file at '{where}' is not a valid JSON file.") from problem
    if not isinstance(value, dict):
        raise NoModel("OSError", f"It looks like the config file at '{where}' is not a valid JSON file.")
    return value


def expected_size(node: Node) -> int:
    """How long a shard should be: what its own header says, else its size."""
    told = node.notes.get("full", "")
    return int(told) if told else node.size


def shard_state(node: Node | None) -> str:
    """'' or what is wrong with a weight file."""
    if node is None:
        return "missing"
    if node.data.startswith(LFS):
        return "pointer"
    if node.size < expected_size(node):
        return "truncated"
    return node.notes.get("wrong", "")


def shard_names(files: Files, path: str) -> list[str]:
    """Names of the weight files that the index promises; without an index those that are there."""
    where = posixpath.join(path, "model.safetensors.index.json")
    if files.exists(where):
        try:
            return sorted(set(json.loads(files.text(where))["weight_map"].values()))
        except (ValueError, KeyError, TypeError, AttributeError):
            return []
    return [n for n in files.listdir(path) if n.endswith(".safetensors")]


def read_model(files: Files, path: str) -> ModelDir:
    """What a launch needs to know of a directory. Raises NoModel."""
    config = read_config(files, path)
    shards = []
    for name in shard_names(files, path):
        node = files.find(posixpath.join(path, name))
        shards.append(Shard(name, node.size if node else 0, shard_state(node)))
    have = set(files.listdir(path))
    tokenizer: dict[str, Any] = {}
    if "tokenizer_config.json" in have:
        try:
            tokenizer = json.loads(files.text(posixpath.join(path, "tokenizer_config.json")))
        except ValueError:
            tokenizer = {}
    template = "chat_template.jinja" in have or "chat_template" in tokenizer
    return ModelDir(
        path=path,
        config=config,
        shards=tuple(shards),
        generation_config="generation_config.json" in have,
        generic_tokenizer=tokenizer.get("tokenizer_class") in ("PreTrainedTokenizerFast", "TokenizersBackend"),
        chat_template=template,
        content_format="openai" if "vision_config" in config else "string",
    )
