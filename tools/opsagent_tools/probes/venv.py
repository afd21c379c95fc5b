# opsagent probe: venv
"""What an environment was built for (run by that environment's own python; imports torch, which takes seconds).

Argument: {}. Answer: {python: "3.12.3", torch: "2.11.0+cu130"|null, cuda: "13.0"|null, arch_list: ["sm_80", …],
devices: [{name, capability: "8.6"}], available: bool, error: str|null}. `devices` is empty when CUDA cannot be used;
`error` then has torch's own words.
"""

from __future__ import annotations

import json
import platform
import warnings
from typing import Any


def main() -> None:
    answer: dict[str, Any] = {
        "python": platform.python_version(), "torch": None, "cuda": None, "arch_list": [], "devices": [],
        "available": False, "error": None,
    }  # fmt: skip
    try:
        with warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            import torch  # type: ignore[import-not-found,unused-ignore]

            answer["torch"], answer["cuda"] = torch.__version__, torch.version.cuda
            flags = torch._C._cuda_getArchFlags() if hasattr(torch._C, "_cuda_getArchFlags") else ""
            answer["arch_list"] = [word for word in (flags or "").split() if word.startswith("sm_")]
            answer["available"] = bool(torch.cuda.is_available())
            for index in range(torch.cuda.device_count() if answer["available"] else 0):
                major, minor = torch.cuda.get_device_capability(index)
                answer["devices"].append({"name": torch.cuda.get_device_name(index), "capability": f"{major}.{minor}"})
        if said and not answer["available"]:
            answer["error"] = str(said[-1].message)[:500]
    except Exception as error:  # whatever a broken environment raises is the finding
        answer["error"] = f"{type(error).__name__}: {error}"[:500]
    print(json.dumps(answer))


main()
