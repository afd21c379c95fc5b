"""What earlier launches on one host taught: the difference between predicted and logged, by SGLang version."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Calibration:
    """Corrections in GiB, added to the prediction. `launches` is how many logs they rest on."""

    free_gib: float = 0.0
    weights_gib: float = 0.0
    loss_gib: float = 0.0
    graphs_gib: float = 0.0
    launches: int = 0

    def text(self) -> str:
        """In words, '' when nothing was learned."""
        if not self.launches:
            return ""
        return f"corrected by {self.launches} launch{'es' if self.launches > 1 else ''} on this host"


NO_CALIBRATION = Calibration()
