"""A hub on loopback for the peers of the planner: configuration, index and the headers of weight files, no weights."""

from __future__ import annotations

import contextlib
import hashlib
import json
import struct
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

COMMIT = "0" * 40
Shape = list[int]


def tensors(config: dict[str, Any]) -> dict[str, Shape]:
    """Names and shapes of a checkpoint, as the hub has them: Qwen3 and Qwen3.5/3.6 (hybrid, MTP, vision)."""
    text = config.get("text_config", config)
    hybrid = "linear_num_value_heads" in text
    stem = "model.language_model" if hybrid else "model"
    hidden, vocab = text["hidden_size"], text["vocab_size"]
    found: dict[str, Shape] = {
        f"{stem}.embed_tokens.weight": [vocab, hidden], "lm_head.weight": [vocab, hidden], f"{stem}.norm.weight": [hidden],
    }  # fmt: skip
    kinds = text.get("layer_types") or ["full_attention"] * text["num_hidden_layers"]
    for index, kind in enumerate(kinds):
        found |= layer(f"{stem}.layers.{index}", text, linear=kind == "linear_attention", gate=hybrid)
    if hybrid:
        found |= layer("mtp.layers.0", text, linear=False, gate=True)
        found |= {"mtp.fc.weight": [hidden, 2 * hidden], "mtp.norm.weight": [hidden]}
        found |= vision(config["vision_config"])
    return found


def layer(name: str, text: dict[str, Any], *, linear: bool, gate: bool) -> dict[str, Shape]:
    hidden, inner, head = text["hidden_size"], text["intermediate_size"], text["head_dim"]
    found: dict[str, Shape] = {
        f"{name}.mlp.gate_proj.weight": [inner, hidden], f"{name}.mlp.up_proj.weight": [inner, hidden],
        f"{name}.mlp.down_proj.weight": [hidden, inner], f"{name}.input_layernorm.weight": [hidden],
        f"{name}.post_attention_layernorm.weight": [hidden],
    }  # fmt: skip
    if linear:
        keys = text["linear_num_key_heads"] * text["linear_key_head_dim"]
        values = text["linear_num_value_heads"] * text["linear_value_head_dim"]
        part = f"{name}.linear_attn"
        return found | {
            f"{part}.in_proj_qkv.weight": [2 * keys + values, hidden], f"{part}.in_proj_z.weight": [values, hidden],
            f"{part}.in_proj_b.weight": [text["linear_num_value_heads"], hidden],
            f"{part}.in_proj_a.weight": [text["linear_num_value_heads"], hidden],
            f"{part}.conv1d.weight": [2 * keys + values, 1, text["linear_conv_kernel_dim"]],
            f"{part}.out_proj.weight": [hidden, values], f"{part}.norm.weight": [text["linear_value_head_dim"]],
        }  # fmt: skip
    q, kv = text["num_attention_heads"] * head, text["num_key_value_heads"] * head
    part = f"{name}.self_attn"
    return found | {
        f"{part}.q_proj.weight": [q * (2 if gate else 1), hidden], f"{part}.k_proj.weight": [kv, hidden],
        f"{part}.v_proj.weight": [kv, hidden], f"{part}.o_proj.weight": [hidden, q],
        f"{part}.q_norm.weight": [head], f"{part}.k_norm.weight": [head],
    }  # fmt: skip


def vision(tower: dict[str, Any]) -> dict[str, Shape]:
    h, inner, wide = (
        tower["hidden_size"],
        tower["intermediate_size"],
        tower["hidden_size"] * tower["spatial_merge_size"] ** 2,
    )
    patch = [h, tower["in_channels"], tower["temporal_patch_size"], tower["patch_size"], tower["patch_size"]]
    found: dict[str, Shape] = {
        "model.visual.patch_embed.proj.weight": patch,
        "model.visual.pos_embed.weight": [tower["num_position_embeddings"], h],
        "model.visual.merger.linear_fc1.weight": [wide, wide],
        "model.visual.merger.linear_fc2.weight": [tower["out_hidden_size"], wide],
    }  # fmt: skip
    for index in range(tower["depth"]):
        part = f"model.visual.blocks.{index}"
        found |= {
            f"{part}.attn.qkv.weight": [3 * h, h], f"{part}.attn.proj.weight": [h, h],
            f"{part}.mlp.linear_fc1.weight": [inner, h], f"{part}.mlp.linear_fc2.weight": [h, inner],
        }  # fmt: skip
    return found


def weight_file(config: dict[str, Any]) -> bytes:
    """The head of a safetensors file; the data is not there."""
    header: dict[str, Any] = {}
    at = 0
    for name, shape in tensors(config).items():
        size = 2
        for width in shape:
            size *= width
        header[name] = {"dtype": "BF16", "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text


class Handler(BaseHTTPRequestHandler):
    """Answers for `files`: repository, name, content; a subclass binds them."""

    files: dict[str, dict[str, bytes]]
    protocol_version = "HTTP/1.1"

    def log_message(self, format: str, *args: Any) -> None:
        return

    def do_HEAD(self) -> None:
        self.answer(body=False)

    def do_GET(self) -> None:
        self.answer(body=True)

    def answer(self, *, body: bool) -> None:
        path = self.path.partition("?")[0].lstrip("/")
        for model, held in self.files.items():
            if path.startswith(f"api/models/{model}/tree"):
                rows = [{"type": "file", "path": name, "size": len(data)} for name, data in held.items()]
                return self.send(json.dumps(rows).encode(), body=body)
            if path.startswith(f"api/models/{model}"):
                return self.send(json.dumps(about(model, held)).encode(), body=body)
            for name, data in held.items():
                if path.startswith(f"{model}/resolve/") and path.endswith(f"/{name}"):
                    return self.send(data, body=body)
        return self.send(b"{}", body=body, status=404)

    def send(self, data: bytes, *, body: bool, status: int = 200) -> None:
        span = self.headers.get("Range", "")
        if span.startswith("bytes=") and status == 200:
            first, _, last = span[6:].partition("-")
            data, status = data[int(first or 0) : int(last) + 1 if last else None], 206
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("X-Repo-Commit", COMMIT)
        self.send_header("ETag", f'"{hashlib.sha256(data).hexdigest()}"')
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        if body:
            self.wfile.write(data)


def about(model: str, held: dict[str, bytes]) -> dict[str, Any]:
    """What the hub's API says of a repository."""
    return {
        "id": model, "modelId": model, "sha": COMMIT, "library_name": "transformers", "tags": ["transformers"],
        "config": json.loads(held["config.json"]), "siblings": [{"rfilename": name} for name in held],
    }  # fmt: skip


@contextlib.contextmanager
def serve(models: Path, names: tuple[str, ...]) -> Iterator[str]:
    """The address of a hub that has `org/NAME` for each name; it ends with the block."""
    files = {}
    for name in names:
        config = json.loads((models / name / "config.json").read_text())
        files[f"org/{name}"] = {"config.json": json.dumps(config).encode(), "model.safetensors": weight_file(config)}
    server = ThreadingHTTPServer(("127.0.0.1", 0), type("Bound", (Handler,), {"files": files}))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}"
    finally:
        server.shutdown()
        server.server_close()
