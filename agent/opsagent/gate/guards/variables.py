"""Guard of environment variables: some of them decide which code a program runs."""

from __future__ import annotations

import posixpath
import re

from opsagent.gate.argv import TRUSTED
from opsagent.gate.guards import paths
from opsagent.gate.policy import under
from opsagent.gate.trace import Trace

HARMLESS = re.compile(
    r"LC_[A-Z]+|LANG(UAGE)?|TZ|TERM|COLUMNS|LINES|NO_COLOR|CLICOLOR|FORCE_COLOR|CUDA_VISIBLE_DEVICES|CUDA_DEVICE_ORDER|"
    r"CUDA_LAUNCH_BLOCKING|CUDA_MODULE_LOADING|NVIDIA_VISIBLE_DEVICES|PYTHONUNBUFFERED|PYTHONDONTWRITEBYTECODE"
    r"|PYTHONNOUSERSITE|"
    r"PYTHONIOENCODING|PYTHONUTF8|PYTHONWARNINGS|PYTHONFAULTHANDLER|PYTORCH_(CUDA_)?ALLOC_CONF|OMP_NUM_THREADS"
    r"|MKL_NUM_THREADS|"
    r"TOKENIZERS_PARALLELISM|HF_HUB_(OFFLINE|DISABLE_XET|DISABLE_PROGRESS_BARS|DISABLE_TELEMETRY|DISABLE_UPDATE_CHECK|"
    r"DOWNLOAD_TIMEOUT|ETAG_TIMEOUT|ENABLE_HF_TRANSFER|VERBOSITY)|HF_XET_[A-Z_]+|HF_DEBUG|TRANSFORMERS_(OFFLINE|VERBOSITY)|"
    r"HF_DATASETS_OFFLINE|NCCL_(?!NET_PLUGIN|TUNER_PLUGIN|CONF_FILE|DEBUG_FILE|TOPO_DUMP_FILE)[A-Z0-9_]+|"
    r"SGL(ANG)?_(?!.*(PATH|DIR|PLUGIN|CMD|URL))[A-Z0-9_]+|TORCH_CUDA_ARCH_LIST|MAX_JOBS|"
    r"DEBIAN_FRONTEND|SYSTEMD_COLORS|SYSTEMD_PAGER_?SECURE|UV_(HTTP_TIMEOUT|CONCURRENT_[A-Z]+|NO_PROGRESS|OFFLINE)"
    r"|PIP_(DISABLE_PIP_VERSION_CHECK|"
    r"NO_INPUT|DEFAULT_TIMEOUT|RETRIES)|VLLM_LOGGING_LEVEL|GRPC_VERBOSITY|RAY_[A-Z_]+|USER|LOGNAME|HOSTNAME|SHLVL"
)
FOLDERS = re.compile(
    r"HF_HOME|HF_HUB_CACHE|HUGGINGFACE_HUB_CACHE|TRANSFORMERS_CACHE|XDG_[A-Z]+_(HOME|DIR)|TRITON_CACHE_DIR"
    r"|FLASHINFER_WORKSPACE_BASE|"
    r"TORCHINDUCTOR_CACHE_DIR|TORCH_HOME|UV_CACHE_DIR|PIP_CACHE_DIR|TMPDIR|TEMP|TMP|SGLANG_CACHE_DIR|HF_XET_CACHE"
    r"|CUDA_CACHE_PATH"
)
HOMES = re.compile(r"HOME|CUDA_HOME|CUDA_PATH|VIRTUAL_ENV")
PAGERS = re.compile(r"PAGER|SYSTEMD_PAGER|GIT_PAGER|MANPAGER")
SECRETS = re.compile(r".*(TOKEN|SECRET|PASSW|API_?KEY|ACCESS_KEY|CREDENTIAL|PRIVATE).*", re.IGNORECASE)


def assign(t: Trace, name: str, value: str) -> None:
    """A variable is set for a command."""
    if HARMLESS.fullmatch(name):
        t.say("R0", "environment", f"sets {name}")
    elif name == "PATH":
        _path(t, value)
    elif PAGERS.fullmatch(name) and value in ("cat", "", "less"):
        t.say("R0", "environment", f"sets {name}")
    elif FOLDERS.fullmatch(name):
        paths.write(t, value, what=f"{name} lets it write below")
    elif HOMES.fullmatch(name):
        place = paths.normal(value)
        fine = place == "/root" or under(place, "/usr/local") or any(under(place, root) for root in _solid(t))
        t.say("R0" if fine else "R2", "environment.home", f"sets {name} to {value}")
    elif SECRETS.fullmatch(name):
        t.say("R1", "environment.secret", f"sets {name} (its value could be seen in the process list)")
    elif re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", name) is None:
        t.say("R3", "environment.name", f"{name!r} is not a variable's name")
    elif re.match(r"(LD_|DYLD_|PYTHON|PERL|RUBY|NODE|BASH|GIT_|LESS|GCONV|GLIBC|MALLOC_|JAVA_|JDK_|SYSTEMD_|SSH_"
    r"|ENV$|IFS$|PS4$|"
                  r"PROMPT_COMMAND$|EDITOR$|VISUAL$|BROWSER$|SHELL$|OPENSSL|CURL_HOME|WGETRC|.*_(COMMAND|CMD|HOOK"
                  r"|WRAPPER)$)", name):  # fmt: skip
        t.say("R3", "environment.code", f"{name} can make a program run other code")
    else:
        t.say("R2", "environment.unknown", f"{name} is not a variable that we know")


def _solid(t: Trace) -> list[str]:
    """Allowed roots that not everybody can write to."""
    return [root for root in t.policy.roots if root not in ("/tmp", "/var/tmp")]


def _path(t: Trace, value: str) -> None:
    for folder in value.split(":"):
        place = posixpath.normpath(folder) if folder.startswith("/") else ""
        solid = place.startswith("/opt/") or (place and any(under(place, root) for root in _solid(t)))
        if place not in TRUSTED and not solid and not under(place or "x", "/usr/local/cuda"):
            t.say(
                "R3",
                "environment.path",
                f"PATH would hold {folder or 'the current folder'!r}: programs there replace the system's",
            )
            return
    t.say("R0", "environment", "sets PATH to known folders")
