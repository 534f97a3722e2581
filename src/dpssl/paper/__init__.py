"""The paper's tables and figures: which runs they need, running them, and drawing what was measured."""
