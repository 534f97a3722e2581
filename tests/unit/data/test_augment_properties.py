"""What holds for both views whatever the settings, the size of the images and the draw."""

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpssl.data.augment import ALL_OPS, Augmentation, strong_view, weak_view


def both_views(images, chosen, seed):
    generator = torch.Generator().manual_seed(seed)
    return weak_view(images, chosen, generator), strong_view(images, chosen, generator)


@settings(max_examples=60)
@given(
    batch=st.integers(0, 5),
    channels=st.sampled_from([1, 3]),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    chosen=st.builds(
        Augmentation,
        flip=st.booleans(),
        shift=st.floats(0, 0.9),
        strong_ops=st.lists(st.sampled_from(ALL_OPS), min_size=1, unique=True).map(tuple),
        n_ops=st.integers(0, 3),
        op_probability=st.floats(0, 1),
        max_level=st.integers(2, 11),
        cutout=st.floats(0, 1),
        interpolation=st.sampled_from(["nearest", "bilinear"]),
        zoom=st.floats(1, 4),
    ),
    seed=st.integers(0, 2**32),
)
def test_views_keep_shape_and_type(batch, channels, height, width, chosen, seed):
    images = torch.arange(batch * channels * height * width).remainder(251).to(torch.uint8)
    images = images.view(batch, channels, height, width)
    first, again = both_views(images, chosen, seed), both_views(images, chosen, seed)
    for view, repeated in zip(first, again, strict=True):
        assert (view.shape, view.dtype) == (images.shape, torch.uint8)
        assert torch.equal(view, repeated)


@settings(max_examples=30)
@given(level=st.integers(0, 255), side=st.integers(1, 20), seed=st.integers(0, 2**32))
def test_weak_view_keeps_a_constant_image(level, side, seed):
    images = torch.full((3, 1, side, side), level, dtype=torch.uint8)
    assert torch.equal(both_views(images, Augmentation(), seed)[0], images)
