"""Label an image collection from a handful of labels: DP-SSL (NeurIPS 2021), and past it.

The two public classes are imported on first use, so that `import dpssl` and `dpssl --help` stay instant.
"""

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["DPSSLClassifier", "LabelModel", "__version__"]

if TYPE_CHECKING:
    from dpssl.estimator import DPSSLClassifier
    from dpssl.label_model import LabelModel


def __getattr__(name: str) -> Any:
    if name == "DPSSLClassifier":
        from dpssl.estimator import DPSSLClassifier

        return DPSSLClassifier
    if name == "LabelModel":
        from dpssl.label_model import LabelModel

        return LabelModel
    raise AttributeError(f"module 'dpssl' has no attribute {name!r}")
