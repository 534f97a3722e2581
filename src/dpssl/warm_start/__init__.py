"""Before step 1, if asked for: the backbone learns from the images alone, by SimCLR or BYOL."""

from dpssl.warm_start.train import BACKBONE, STAGE, train_warm_start

__all__ = ["BACKBONE", "STAGE", "train_warm_start"]
