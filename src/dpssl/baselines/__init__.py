"""The systems DP-SSL is compared with, one file each, on its data, backbone, augmentation and loop."""
