"""What package indexes hold in the lab, what resolvers pick, and how an environment comes to be on a host.

Version sets are those of the wheels' metadata as resolvers of November 2026 fill them in.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterable

from opsagent_lab.engine.venvs import name_of, site
from opsagent_lab.program import Process
from opsagent_lab.state import GIB, MIB, Node, Venv

_SETS: dict[str, dict[str, str]] = {
    "0.5.9": {
        "torch": "2.9.1", "torchvision": "0.24.1", "torchaudio": "2.9.1", "torchcodec": "0.8.0", "sgl-kernel": "0.3.21",
        "flashinfer-python": "0.6.3", "flashinfer-cubin": "0.6.3", "transformers": "4.57.1", "huggingface-hub": "0.36.2",
        "triton": "3.5.1", "nvidia-nccl-cu12": "2.27.5",
    },
    "0.5.10": {
        "torch": "2.9.1", "torchvision": "0.24.1", "torchaudio": "2.9.1", "torchcodec": "0.9.1", "sglang-kernel": "0.4.1",
        "flashinfer-python": "0.6.7.post2", "flashinfer-cubin": "0.6.7.post2", "transformers": "5.3.0",
        "huggingface-hub": "1.33.0", "flash-attn-4": "4.0.0b36", "triton": "3.5.1", "nvidia-nccl-cu12": "2.27.5",
    },
    "0.5.11": {
        "torch": "2.11.0", "torchvision": "0.26.0", "torchaudio": "2.11.0", "torchcodec": "0.11.1", "sglang-kernel": "0.4.2",
        "flashinfer-python": "0.6.8.post1", "flashinfer-cubin": "0.6.8.post1", "transformers": "5.6.0",
        "huggingface-hub": "1.33.0", "flash-attn-4": "4.0.0b15", "triton": "3.6.0", "nvidia-nccl-cu13": "2.28.9",
    },
    "0.5.23": {
        "torch": "2.14.1", "torchvision": "0.29.2", "torchaudio": "2.11.0", "torchcodec": "0.17.0",
        "sglang-kernel": "0.4.10",
        "flashinfer-python": "0.7.2", "transformers": "5.19.0", "huggingface-hub": "1.33.0", "flash-attn-4": "4.0.0b36",
        "triton": "3.8.0", "nvidia-nccl-cu13": "2.30.7",
    },
}  # fmt: skip
COUNTS = {"0.5.9": 169, "0.5.10": 182, "0.5.11": 196, "0.5.23": 207}
_COMMON = {
    "numpy": "2.3.5", "fastapi": "0.124.0", "uvicorn": "0.54.0", "pydantic": "2.14.2", "requests": "2.34.1",
    "pyzmq": "27.1.0",
    "safetensors": "0.8.1", "tokenizers": "0.22.2", "openai": "2.6.1",
    "orjson": "3.11.9", "pillow": "12.1.0", "psutil": "7.2.1",
    "ninja": "1.13.0", "xgrammar": "0.1.33",
}  # fmt: skip
_SINGLE = {
    "huggingface-hub": "2.4.0",
    "hf-xet": "1.5.2",
    "uv": "0.13.9",
    "pip": "26.1",
    "ninja": "1.13.0",
    "vllm": "0.17.0",
}
CUDA = {"2.9.1": "12.8", "2.11.0": "13.0", "2.14.1": "13.0"}
ARCHS = {
    "2.9.1": ["sm_70", "sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
    "2.11.0": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
    "2.14.1": ["sm_75", "sm_80", "sm_86", "sm_90", "sm_100", "sm_120"],
}
_SIZES = {"torch": 4200 * MIB, "flashinfer-cubin": 2100 * MIB, "sglang-kernel": 900 * MIB, "sgl-kernel": 900 * MIB}
_BULK = {"0.5.9": 4 * GIB, "0.5.10": 4 * GIB, "0.5.11": 5 * GIB, "0.5.23": 5 * GIB}
"""Everything else that comes with SGLang: CUDA libraries above all."""


class NoSolution(Exception):
    """The resolver gives up; the text is what uv prints."""


def closure(version: str) -> dict[str, str]:
    """All packages that an installation of this SGLang brings."""
    return {"sglang": version, **_SETS[version], **_COMMON}


def known(package: str) -> str:
    """The newest version of a package that the index has; '' for one that it does not have."""
    everything = {**_COMMON, **_SETS["0.5.23"], **_SINGLE, "sglang": "0.5.23"}
    return everything.get(name_of(package), "")


def parse(requirement: str) -> tuple[str, str]:
    """`sglang[all]==0.5.11` → ("sglang", "==0.5.11")."""
    found = re.match(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*([^;#]*)", requirement)
    return (name_of(found.group(1)), found.group(2).strip()) if found else ("", "")


def pinned(lock: str) -> dict[str, str]:
    """Names and versions of a requirements file; hashes and comments are passed over."""
    out = {}
    for line in lock.replace("\\\n", " ").splitlines():
        name, wanted = parse(line.partition("--hash")[0])
        if name and wanted.startswith("=="):
            out[name] = wanted[2:].strip()
    return out


def old(uv: str) -> bool:
    """uv before 0.12 takes no pre-release that is not named on the command line."""
    return tuple(int(p) for p in uv.split(".")[:2]) < (0, 12)


def resolve(requirements: Iterable[str], *, uv: str | None, prerelease: bool, python: str) -> dict[str, str]:
    """What the resolver picks. `uv` None is pip. Raises NoSolution."""
    wanted = dict(parse(r) for r in requirements)
    out: dict[str, str] = {}
    for name, spec in wanted.items():
        if name == "sglang":
            out |= closure(_sglang(spec, wanted, uv, prerelease, python))
        elif spec.startswith("=="):
            out[name] = spec[2:].strip()
        else:
            newest = known(name)
            if not newest:
                raise NoSolution(_not_found(name, uv))
            out.setdefault(name, newest)
    return out


def _sglang(spec: str, wanted: dict[str, str], uv: str | None, prerelease: bool, python: str) -> str:
    strict = uv is not None and old(uv) and not prerelease and "flash-attn-4" not in wanted
    if strict:
        if spec in ("", "<0.5.10") or spec == "==0.5.9":
            return "0.5.9"
        raise NoSolution(_prerelease(spec))
    exact = spec[2:].strip() if spec.startswith("==") else ""
    if exact and exact not in _SETS:
        raise NoSolution(_no_version("sglang", exact))
    return exact or ("0.5.23" if python >= "3.11" else "0.5.11")


def _prerelease(spec: str) -> str:
    exact = spec if spec.startswith("==") else "==0.5.23"
    floor = {"==0.5.10": "4.0.0b4", "==0.5.11": "4.0.0b9"}.get(exact, "4.0.0b18")
    return (
        "  × No solution found when resolving dependencies:\n"
        f"  ╰─▶ Because only flash-attn-4<{floor} is available and sglang{exact}\n"
        f"      depends on flash-attn-4>={floor}, we can conclude that sglang{exact}\n"
        "      cannot be used.\n"
        f"      And because you require sglang{spec}, we can conclude that your\n"
        "      requirements are unsatisfiable.\n\n"
        f"hint: `flash-attn-4` was requested with a pre-release marker (e.g., flash-attn-4>={floor}), but pre-releases "
        "weren't enabled (try: `--prerelease=allow`)\n"
    )


def _no_version(name: str, version: str) -> str:
    return (
        "  × No solution found when resolving dependencies:\n"
        f"  ╰─▶ Because there is no version of {name}=={version} and you require {name}=={version}, we can "
        "conclude that your\n"
        "      requirements are unsatisfiable.\n"
    )


def _not_found(name: str, uv: str | None) -> str:
    if uv is None:
        return (
            f"ERROR: Could not find a version that satisfies the requirement {name} (from versions: none)\n"
            f"ERROR: No matching distribution found for {name}\n"
        )
    return (
        "  × No solution found when resolving dependencies:\n"
        f"  ╰─▶ Because {name} was not found in the package registry and you require {name}, we can conclude that your\n"
        "      requirements are unsatisfiable.\n"
    )


def wheel_fits(glibc: str, packages: dict[str, str]) -> bool:
    """SGLang's wheels need glibc 2.34 from 0.5.11 on."""
    minor = tuple(int(p) for p in glibc.split(".")[:2])
    return packages.get("sglang", "") not in ("0.5.11", "0.5.23") or minor >= (2, 34)


def size_of(packages: dict[str, str]) -> int:
    """Bytes that an installation takes on disk."""
    bulk = _BULK.get(packages.get("sglang", ""), 0)
    return bulk + sum(_SIZES.get(name, 3 * MIB) for name in packages)


def create(process: Process, prefix: str, python: str, *, pip: bool, home: str = "/usr/bin") -> None:
    """A new, empty environment at `prefix`."""
    files = process.files
    files.mkdir(f"{prefix}/bin", parents=True)
    short = ".".join(python.split(".")[:2])
    files.mkdir(f"{prefix}/lib/python{short}/site-packages", parents=True)
    text = f"home = {home}\ninclude-system-site-packages = false\nversion_info = {python}\n"
    files.write(f"{prefix}/pyvenv.cfg", text)
    for name in ("python", "python3", f"python{short}"):
        program(process, f"{prefix}/bin/{name}", "python")
    files.write(f"{prefix}/bin/activate", '# This file must be used with "source bin/activate" *from bash*\n')
    venv = process.host.venvs[prefix] = Venv(python=python)
    if pip:
        venv.packages["pip"] = "26.1"
        program(process, f"{prefix}/bin/pip", "pip")


def program(process: Process, path: str, name: str) -> None:
    """An executable of an environment."""
    prefix = posixpath.dirname(posixpath.dirname(path))
    text = f"#!{prefix}/bin/python\n".encode()
    process.files.put(path, Node(mode=0o755, data=text, size=len(text), program=name))


def install(process: Process, prefix: str, packages: dict[str, str]) -> list[str]:
    """Put packages into an environment; returns `name==version` of what is new. Raises OSError when the disk is full."""
    venv = process.host.venvs[prefix]
    new = {n: v for n, v in packages.items() if venv.packages.get(n) != v}
    where = site(prefix, venv)
    if size_of(new) > process.files.free(where):
        raise OSError(28, "No space left on device", where)
    for name, version in new.items():
        folder = f"{where}/{name.replace('-', '_')}-{version}.dist-info"
        process.files.mkdir(folder, parents=True)
        process.files.write(f"{folder}/METADATA", f"Metadata-Version: 2.4\nName: {name}\nVersion: {version}\n")
        size = _SIZES.get(name, 3 * MIB)
        process.files.put(f"{where}/{name.replace('-', '_')}/_bulk.bin", Node(size=size))
    if "sglang" in new:
        process.files.put(f"{where}/nvidia/_bulk.bin", Node(size=_BULK.get(new["sglang"], 0)))
        program(process, f"{prefix}/bin/sglang", "sglang")
    if "huggingface-hub" in new:
        program(process, f"{prefix}/bin/hf", "hf")
        if not new["huggingface-hub"].startswith("2."):
            program(process, f"{prefix}/bin/huggingface-cli", "huggingface-cli")
    if "uv" in new:
        program(process, f"{prefix}/bin/uv", "uv")
    if "torch" in new:
        venv.cuda = CUDA.get(new["torch"], "13.0")
        venv.arch_list = list(ARCHS.get(new["torch"], ARCHS["2.11.0"]))
        process.files.write(f"{where}/torch/version.py", f"__version__ = '{new['torch']}'\ncuda = '{venv.cuda}'\n")
    venv.packages.update(packages)
    process.world.count(process.host, "installs")
    return sorted(f"{n}=={v}" for n, v in new.items())
