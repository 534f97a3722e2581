"""Supervised learning with the label of every training image: the ceiling, printed beside the others in the tables.

    L = H(y, p(weak view)) over all images

This is the one method that trains on labels nobody gave; its run says so.
"""

from dpssl.baselines.supervised import Supervised


class FullySupervised(Supervised):
    """`Supervised` in everything but the labels it is handed."""

    uses_all_labels = True
