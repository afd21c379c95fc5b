"""A run as something to look at: events become rows, rows become steps and calls, a page shows them."""

from opsagent.viewer.build import build_view
from opsagent.viewer.model import Claim, Fold, Item, Row, Section, View

__all__ = ["Claim", "Fold", "Item", "Row", "Section", "View", "build_view"]
