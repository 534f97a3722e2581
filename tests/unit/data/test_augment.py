"""The weak and the strong view: draws per image, flips, reflected shifts, Cutout, and settings that cannot be used."""

import numpy as np
import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode

from dpssl.config import flag
from dpssl.data.augment import ALL_OPS, Augmentation, apply_strong, draw_strong, strong_view, weak_view
from dpssl.data.geometry import cut_out
from dpssl.data.randaugment import apply_op, level_value
from dpssl.errors import InputError

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
STILL = {"flip": False, "shift": 0.0, "n_ops": 0, "cutout": 0.0}  # nothing happens


def generator(seed: int = 0, device: str = "cpu") -> torch.Generator:
    return torch.Generator(device).manual_seed(seed)


def noise(*shape: int) -> torch.Tensor:
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=generator(7))


def copies(n_images: int, *shape: int) -> torch.Tensor:
    """The same picture n times: whatever differs afterwards was drawn."""
    return noise(1, *shape).expand(n_images, *shape).contiguous()


def padded_crops(image: np.ndarray, pad_y: int, pad_x: int) -> set[bytes]:
    height, width = image.shape[1:]
    padded = np.pad(image, ((0, 0), (pad_y, pad_y), (pad_x, pad_x)), mode="reflect")
    return {
        padded[:, y : y + height, x : x + width].tobytes() for y in range(2 * pad_y + 1) for x in range(2 * pad_x + 1)
    }


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("height", "width", "shift"), [(8, 8, 0.125), (32, 32, 0.125), (17, 23, 0.2), (5, 4, 0.99)])
@pytest.mark.parametrize("flip", [False, True])
def test_weak_view_is_numpys_reflect_pad_and_crop(height, width, shift, flip, device):
    images = copies(2_000, 3, height, width)
    pads = int(height * shift), int(width * shift)
    expected = padded_crops(images[0].numpy(), *pads)
    if flip:
        expected |= padded_crops(images[0].numpy()[:, :, ::-1], *pads)
    views = weak_view(images.to(device), Augmentation(flip=flip, shift=shift), generator(device=device)).cpu()
    seen = {view.numpy().tobytes() for view in views}
    assert seen <= expected
    assert len(seen) > 0.95 * len(expected)  # 2,000 draws leave hardly a window of at most 162 unseen


def test_shift_of_default_setting_is_four_of_32_pixels_to_either_side():
    ramp = torch.arange(32, dtype=torch.uint8).expand(3_000, 1, 32, 32).contiguous()
    middle = weak_view(ramp, Augmentation(flip=False), generator())[:, 0, 16, 16].int() - 16
    values, counts = middle.unique(return_counts=True)
    assert values.tolist() == list(range(-4, 5))
    assert (counts / 3_000 - 1 / 9).abs().max() < 5 * (1 / 9 * 8 / 9 / 3_000) ** 0.5


def test_half_of_the_images_are_mirrored():
    images = copies(4_000, 1, 6, 6)
    views = weak_view(images, Augmentation(shift=0.0), generator())
    mirrored = (views == images.flip(3)).flatten(1).all(1)
    assert torch.equal(~mirrored, (views == images).flatten(1).all(1))
    assert abs(float(mirrored.double().mean()) - 0.5) < 5 * 0.5 / 4_000**0.5


def test_without_flip_no_view_is_mirrored():
    ramp = torch.arange(0, 256, 8, dtype=torch.uint8).expand(500, 3, 32, 32).contiguous()  # brighter to the right
    # Solarize turns the ramp round by itself, and two translations bring the black border into the middle.
    ops = tuple(op for op in ALL_OPS if op != "solarize")
    still = {"shift": 0.0, "cutout": 0.0, "strong_ops": ops, "n_ops": 1}
    for view in (weak_view, strong_view):
        middle = view(ramp, Augmentation(flip=False, **still), generator())[:, :, 16, 12:20].int()
        assert bool((middle.diff(dim=2) >= 0).all())
        mirrored = view(ramp, Augmentation(flip=True, **still), generator())[:, :, 16, 12:20].int()
        assert bool((mirrored.diff(dim=2) < 0).any())


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("view", [weak_view, strong_view])
def test_draws_follow_the_generator_and_nothing_else(view, device):
    images = copies(64, 3, 32, 32).to(device)
    first = view(images, Augmentation(), generator(1, device))
    torch.manual_seed(99)
    assert torch.equal(view(images, Augmentation(), generator(1, device)), first)
    assert not torch.equal(view(images, Augmentation(), generator(2, device)), first)
    assert len({image.cpu().numpy().tobytes() for image in first}) > 32  # one draw per image


def test_without_a_generator_torchs_own_is_used():
    images = copies(8, 1, 8, 8)
    torch.manual_seed(5)
    first = strong_view(images, Augmentation(), None)
    torch.manual_seed(5)
    assert torch.equal(strong_view(images, Augmentation(), None), first)


@pytest.mark.parametrize("op", ["rotate", "posterize", "translate_x"])
def test_strong_view_draws_every_level_of_an_operation(op):
    images = copies(600, 3, 16, 16)
    chosen = Augmentation(**STILL | {"n_ops": 1}, strong_ops=(op,), op_probability=1.0)
    signs = (1,) if op == "posterize" else (-1, 1)
    values = [sign * level_value(op, level, 16, 16) for sign in signs for level in range(1, 10)]
    expected = {view.numpy().tobytes() for view in apply_op(images[: len(values)], op, values)}
    assert {view.numpy().tobytes() for view in strong_view(images, chosen, generator())} == expected


def test_turns_follow_each_other():
    images = copies(200, 1, 16, 16)
    once = ("posterize", 4), ("solarize", 231)
    chosen = Augmentation(**STILL | {"n_ops": 2}, strong_ops=("posterize", "solarize"), op_probability=1.0, max_level=2)
    expected = set()
    for first, first_value in once:
        for second, second_value in once:
            changed = apply_op(images[:1], first, [first_value])
            expected.add(apply_op(changed, second, [second_value]).numpy().tobytes())
    assert {view.numpy().tobytes() for view in strong_view(images, chosen, generator())} == expected


@pytest.mark.parametrize("view", [weak_view, strong_view])
def test_with_everything_off_nothing_changes(view):
    images = noise(4, 3, 9, 7)
    assert torch.equal(view(images, Augmentation(**STILL), generator()), images)


def test_images_passed_in_are_left_alone():
    images = noise(16, 3, 12, 12)
    before = images.clone()
    strong_view(images, Augmentation(), generator())
    assert torch.equal(images, before)


@pytest.mark.parametrize(
    ("centre_y", "centre_x", "rows", "columns"),  # 4-pixel squares in an image of 8 x 10, worked out by hand
    [
        (4.0, 5.0, (2, 6), (3, 7)),
        (4.9, 5.9, (2, 6), (3, 7)),
        (0.0, 0.0, (0, 4), (0, 4)),  # moved back to the first pixel
        (7.9, 9.9, (5, 8), (7, 10)),  # clipped at the last
    ],
)
def test_cutout_square(centre_y, centre_x, rows, columns):
    expected = torch.zeros(1, 3, 8, 10, dtype=torch.uint8)
    expected[:, :, slice(*rows), slice(*columns)] = 127
    blank = torch.zeros_like(expected)
    assert torch.equal(cut_out(blank, 4, torch.tensor([centre_y]), torch.tensor([centre_x])), expected)


def test_cutout_covers_the_share_of_the_side_and_moves():
    chosen = Augmentation(**STILL | {"cutout": 0.5})
    grey = strong_view(torch.zeros(2_000, 1, 32, 32, dtype=torch.uint8), chosen, generator())[:, 0] == 127
    sides = grey.any(2).sum(1), grey.any(1).sum(1)
    for side in sides:
        assert (int(side.min()), int(side.max())) == (9, 16)  # the last start is floor(32 - 16 / 2) - 1 = 23
    assert torch.equal(grey.sum((1, 2)), sides[0] * sides[1])
    assert bool(grey.any(0).all())  # no pixel is safe
    mean_side = (25 * 16 + sum(range(9, 16))) / 32  # whole where the centre is below 25; one pixel less per pixel after
    assert abs(float(grey.sum((1, 2)).double().mean()) - mean_side**2) < 5  # five standard errors


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("shift", -0.1),
        ("shift", 1.0),
        ("shift", float("nan")),
        ("strong_ops", ("rotate", "blur")),
        ("strong_ops", ()),
        ("n_ops", -1),
        ("op_probability", 1.5),
        ("op_probability", -0.5),
        ("max_level", 1),
        ("max_level", 12),
        ("cutout", -0.01),
        ("cutout", 1.01),
        ("interpolation", "cubic"),
    ],
)
def test_settings_that_cannot_be_used_are_named(field, value):
    met = "blur" if value == ("rotate", "blur") else str(value)
    with pytest.raises(InputError, match=flag(field)) as error:
        Augmentation(**{field: value})
    assert met in str(error.value) or not value


@pytest.mark.parametrize("interpolation", ["nearest", "bilinear"])
def test_views_never_ask_for_the_value_of_a_tensor(interpolation):
    """Tensors without content stand in for the images: any shape or branch that depends on data would raise."""
    chosen = Augmentation(interpolation=interpolation)
    images = noise(5, 3, 17, 23)
    strong_view(images, chosen, generator())  # makes the constants
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        assert strong_view(fake.from_tensor(images), chosen, generator()).shape == images.shape


def test_torch_compile_takes_the_strong_view_whole():
    images = noise(6, 3, 12, 12)
    draw = draw_strong(images, Augmentation(), generator())
    compiled = torch.compile(apply_strong, fullgraph=True, backend="eager")
    assert torch.equal(compiled(images, Augmentation(), draw), strong_view(images, Augmentation(), generator()))


@pytest.mark.gpu
@pytest.mark.parametrize("factor", [1.0, 1.6])
def test_strong_view_can_be_captured_in_a_cuda_graph(factor):
    chosen = Augmentation(zoom=factor)
    draws = generator(3, "cuda")
    images = noise(64, 3, 32, 32).cuda()
    strong_view(images, chosen, draws)  # makes the constants
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    graph.register_generator_state(draws)
    with torch.cuda.graph(graph):
        captured = strong_view(images, chosen, draws)
    draws.manual_seed(11)
    graph.replay()
    first = captured.clone()
    graph.replay()
    assert not torch.equal(captured, first)  # every replay draws anew
    assert torch.equal(strong_view(images, chosen, generator(11, "cuda")), first)
