"""Weight files: the probe on real safetensors headers, completeness, and weights that follow from the files."""

from __future__ import annotations

import json
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from opsagent_tools import probes
from opsagent_tools.probes.model_files import describe
from opsagent_tools.read_config import described
from opsagent_tools.sglang.checkpoint import facts_of, part_of
from opsagent_tools.sglang.gpus import GpuFacts
from opsagent_tools.sglang.planner import plan

Shape = tuple[str, list[int]]
WIDTH = {"BF16": 2, "F32": 4, "F8_E4M3": 1, "I32": 4, "U8": 1}
CONFIG = {
    "architectures": ["Qwen3ForCausalLM"], "model_type": "qwen3", "hidden_size": 256, "num_hidden_layers": 2, "head_dim": 64,
    "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 512, "vocab_size": 1024,
    "torch_dtype": "bfloat16",
    "max_position_embeddings": 4096, "tie_word_embeddings": False,
}  # fmt: skip


def tensors(dtype: str = "BF16") -> dict[str, Shape]:
    found: dict[str, Shape] = {
        "model.embed_tokens.weight": ("BF16", [1024, 256]),
        "lm_head.weight": ("BF16", [1024, 256]),
    }
    for layer in range(2):
        stem = f"model.layers.{layer}"
        found |= {
            f"{stem}.self_attn.q_proj.weight": (dtype, [256, 256]), f"{stem}.self_attn.k_proj.weight": (dtype, [128, 256]),
            f"{stem}.self_attn.v_proj.weight": (dtype, [128, 256]), f"{stem}.self_attn.o_proj.weight": (dtype, [256, 256]),
            f"{stem}.mlp.gate_proj.weight": (dtype, [512, 256]), f"{stem}.mlp.up_proj.weight": (dtype, [512, 256]),
            f"{stem}.mlp.down_proj.weight": (dtype, [256, 512]), f"{stem}.input_layernorm.weight": ("BF16", [256]),
        }  # fmt: skip
    return found


def write(path: Path, entries: dict[str, Shape], *, cut: int = 0) -> None:
    """A safetensors file with a real header; `cut` bytes are missing at the end."""
    header: dict[str, Any] = {}
    at = 0
    for name, (dtype, shape) in entries.items():
        size = WIDTH[dtype]
        for width in shape:
            size *= width
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [at, at + size]}
        at += size
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + b"\0" * (at - cut))


def model(folder: Path, entries: dict[str, Shape], **more: Any) -> Path:
    (folder / "config.json").write_text(json.dumps({**CONFIG, **more}))
    half = len(entries) // 2
    names = list(entries)
    write(folder / "model-00001-of-00002.safetensors", {name: entries[name] for name in names[:half]})
    write(folder / "model-00002-of-00002.safetensors", {name: entries[name] for name in names[half:]})
    where = {name: f"model-0000{1 if at < half else 2}-of-00002.safetensors" for at, name in enumerate(names)}
    (folder / "model.safetensors.index.json").write_text(
        json.dumps({"metadata": {"total_size": 1}, "weight_map": where})
    )
    return folder


def test_complete(tmp_path: Path) -> None:
    read = described(describe(str(model(tmp_path, tensors()))), str(tmp_path))
    assert read.complete
    assert read.cause is None
    assert read.tensors == len(tensors())
    assert read.bytes == sum(2 * shape[0] * (shape[1] if len(shape) > 1 else 1) for _dtype, shape in tensors().values())
    assert read.layers == {"full": 2, "dense": 2}
    assert read.least_sglang == "0.5.9"


def test_the_script_runs_alone(tmp_path: Path) -> None:
    """As it is sent to a host: python3 -c SCRIPT ARGUMENT."""
    model(tmp_path, tensors())
    argument = json.dumps({"path": str(tmp_path), "headers": True})
    done = subprocess.run(
        [sys.executable, "-c", probes.script("model_files"), argument], capture_output=True, text=True, check=True
    )
    told, here = json.loads(done.stdout.splitlines()[-1]), describe(str(tmp_path))
    assert told.pop("free_bytes") > 0
    here.pop("free_bytes")
    assert told == here


@pytest.mark.parametrize(
    ("fault", "state"), [("cut", "truncated"), ("gone", "missing"), ("pointer", "pointer"), ("noise", "damaged")]
)
def test_half_downloaded(tmp_path: Path, fault: str, state: str) -> None:
    model(tmp_path, tensors())
    shard = tmp_path / "model-00002-of-00002.safetensors"
    if fault == "cut":
        shard.write_bytes(shard.read_bytes()[:-1000])
    elif fault == "gone":
        shard.unlink()
    elif fault == "pointer":
        shard.write_bytes(b"version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    else:
        shard.write_bytes(struct.pack("<Q", 8) + b"notjson!" + b"\0" * 64)
    read = described(describe(str(tmp_path)), str(tmp_path))
    assert not read.complete
    assert read.checkpoint.bad == {shard.name: state}
    found = plan(
        read.config, gpus=GpuFacts("RTX 4090", 24564), sglang="0.5.11", checkpoint=read.checkpoint, advise=False
    )
    assert any("half downloaded" in note for note in found.notes)


def test_config_only_is_not_half_downloaded(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(json.dumps(CONFIG))
    read = described(describe(str(tmp_path)), str(tmp_path))
    assert not read.complete
    assert read.checkpoint.complete is None
    assert read.cause is None


def test_files_count_where_they_differ_from_the_configuration(tmp_path: Path) -> None:
    """A checkpoint that stores its linear layers in one byte, although config.json does not say so."""
    wide = {**CONFIG, "hidden_size": 4096, "intermediate_size": 16384, "num_attention_heads": 32, "head_dim": 128}
    layer = {
        "model.layers.0.mlp.gate_proj.weight": ("F8_E4M3", [16384, 4096]),
        "model.layers.0.mlp.up_proj.weight": ("F8_E4M3", [16384, 4096]),
        "model.layers.0.mlp.down_proj.weight": ("F8_E4M3", [4096, 16384]),
    }
    groups = [
        {"name": name.replace(".0.", ".#."), "dtype": dtype, "tensors": 2, "elements": 2 * shape[0] * shape[1],
         "bytes": 2 * shape[0] * shape[1]} for name, (dtype, shape) in layer.items()
    ]  # fmt: skip
    facts = facts_of({"shards": [{"name": "a", "size": 1, "state": ""}], "groups": groups})
    cards = GpuFacts("RTX 4090", 24564)
    before = plan(wide, gpus=cards, sglang="0.5.11", advise=False).per_gpu_gib
    after = plan(wide, gpus=cards, sglang="0.5.11", checkpoint=facts, advise=False).per_gpu_gib
    assert before is not None
    assert after is not None
    assert after.weights == pytest.approx(before.weights - 3 * 2 * 16384 * 4096 / 2**30, abs=0.02)


@pytest.mark.parametrize(
    ("name", "part"),
    [
        ("model.layers.#.self_attn.q_proj.weight", "attention"),
        ("model.layers.#.mlp.experts.#.gate_proj.weight", "experts"),
        ("model.language_model.layers.#.linear_attn.in_proj_qkv.weight", "recurrent"),
        ("model.visual.blocks.#.attn.qkv.weight", "vision"),
        ("mtp.layers.#.self_attn.q_proj.weight", "draft"),
        ("model.language_model.embed_tokens.weight", "embedding"),
        ("lm_head.weight", "head"),
        ("model.layers.#.mlp.down_proj.weight", "mlp"),
        ("model.layers.#.input_layernorm.weight", "norms"),
        ("backbone.layers.#.mixer.in_proj.weight", "recurrent"),
    ],
)
def test_parts(name: str, part: str) -> None:
    assert part_of(name) == part


@given(st.binary(max_size=400))
def test_any_bytes_are_an_answer(data: bytes) -> None:
    """Whatever lies in a weight file, the probe says something of it."""
    import tempfile

    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "x.safetensors").write_bytes(data)
        answer = describe(folder)
        assert answer["shards"][0]["state"] in ("", "truncated", "pointer", "damaged")
