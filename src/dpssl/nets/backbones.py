"""Every backbone of steps 1 and 3 by its name: the Wide ResNet, or any image network of timm.

Comes in: the settings of the section `backbone`. Goes out: a module with `n_features` that turns images (B, channels,
H, W) into a feature map (B, D, h, w). `build_backbone` makes the architecture, which is all that reading a trained
model needs; `start_backbone` then draws its weights or reads those of `--backbone-weights`.

timm is imported where it is used: beside a torchvision that does not fit torch it cannot be imported at all.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from dpssl.config import FROM_CACHE, TIMM_PREFIX, WIDE_RESNET, BackboneConfig
from dpssl.errors import InputError
from dpssl.nets.wide_resnet import WideResNet, initialize

USUAL_REDUCTION = 32  # pixels a side that one position of an ImageNet network stands for
LEAST_POSITIONS = 2  # a side; smaller images are scaled up until the feature map has as many
REFUSED = torch.serialization.pickle.UnpicklingError  # type: ignore[attr-defined]  # by torch.load: not only tensors
CACHED_NAMES = ("model.safetensors", "pytorch_model.bin")


class TimmBackbone(nn.Module):
    """A network of timm without its pooling and classifier, for images of any size."""

    def __init__(self, network: nn.Module, bn_momentum: float) -> None:
        super().__init__()
        self.network = network
        self.n_features = cast(int, network.num_features)
        self.reduction = _reduction(network)
        for module in network.modules():
            if isinstance(module, nn.modules.batchnorm._BatchNorm):
                module.momentum = bn_momentum

    def forward(self, images: Tensor) -> Tensor:
        least = LEAST_POSITIONS * self.reduction
        height, width = images.shape[-2:]
        if min(height, width) < least:
            scale = least / min(height, width)
            size = (max(least, round(height * scale)), max(least, round(width * scale)))
            images = F.interpolate(images, size, mode="bilinear", align_corners=False)
        return self._as_map(cast(Any, self.network).forward_features(images))

    def _as_map(self, features: Tensor) -> Tensor:
        """timm's three forms as (B, D, h, w). Where a token lies does not matter to what follows: both pool."""
        if features.ndim == 3:  # class and register tokens stand first
            n_prefix = int(getattr(self.network, "num_prefix_tokens", 0))
            return features[:, n_prefix:].transpose(1, 2).unsqueeze(-1)
        is_last = getattr(self.network, "output_fmt", "NCHW") == "NHWC"
        return features.permute(0, 3, 1, 2) if is_last else features


def build_backbone(shape: BackboneConfig, n_channels: int) -> nn.Module:
    """The architecture that `--backbone` names, its weights of no meaning yet."""
    if shape.backbone.startswith(TIMM_PREFIX):
        with torch.device("cpu"):  # also while shapes are checked on the meta device, where not every network can be
            return TimmBackbone(_timm_network(shape.backbone, n_channels), shape.bn_momentum)
    if shape.backbone != WIDE_RESNET:
        raise InputError(f"--backbone {shape.backbone!r}: choose {WIDE_RESNET} or {TIMM_PREFIX}NAME")
    return WideResNet(shape.depth, shape.width, shape.strides, n_channels, shape.bn_momentum)


def start_backbone(backbone: nn.Module, shape: BackboneConfig, n_channels: int, generator: torch.Generator) -> None:
    """Draw the weights from `generator`, or read those that `--backbone-weights` names."""
    if not isinstance(backbone, TimmBackbone):
        initialize(backbone, generator)
        if shape.backbone_weights:
            drawn = scale_free_norm(backbone)
            _load_weights(backbone, shape)
            if shape.rescale_start:
                rescale_to(backbone, drawn)
        return
    weights = _read_weights(shape, backbone.network) if shape.backbone_weights else None
    seed = int(torch.randint(2**31, (1,), generator=generator))
    try:
        fresh = _timm_network(shape.backbone, n_channels, weights, seed)
    except RuntimeError as problem:  # the tensors' shapes; timm names all of them, a line each
        raise InputError(
            f"--backbone-weights {shape.backbone_weights}: not the weights of {shape.backbone} "
            f"({str(problem).splitlines()[-1].strip()})"
        ) from problem
    backbone.network.load_state_dict(fresh.state_dict())


def scale_free_norm(backbone: nn.Module) -> float:
    """Norm of the convolutions whose common factor changes nothing; 0 for networks of which that is not known."""
    if not isinstance(backbone, WideResNet):
        return 0.0
    return float(torch.cat([weight.detach().flatten() for weight in backbone.scale_free()[0]]).norm())


def rescale_to(backbone: nn.Module, norm: float) -> None:
    """Give those convolutions this norm, so that the learning rate counts as it does for weights of that norm.

    Training shrinks them by weight decay: SimCLR's are a fifth of what was drawn after 20,000 steps, so that the next
    stage's first steps, 25 times as large for them, would undo what they have learnt.
    """
    if isinstance(backbone, WideResNet) and norm:
        backbone.rescale(norm / scale_free_norm(backbone))


def check_backbone(shape: BackboneConfig) -> None:
    """What would otherwise fail only when training starts: weights that are missing or another network's."""
    if not shape.backbone_weights:
        return
    if shape.backbone_weights == FROM_CACHE and not shape.backbone.startswith(TIMM_PREFIX):
        raise InputError(
            f"--backbone-weights {FROM_CACHE}: only for networks of timm; "
            f"name a file, or add --backbone {TIMM_PREFIX}NAME"
        )
    n_channels = 3  # timm turns the weights of colour images into those of grey ones
    if shape.backbone == WIDE_RESNET:
        stem = _tensors_of(shape).get("stem.weight")
        n_channels = n_channels if stem is None else stem.shape[1]
    start_backbone(build_backbone(shape, n_channels), shape, n_channels, generator=torch.Generator())


def _import_timm() -> Any:
    try:
        import timm
    except ModuleNotFoundError as problem:
        raise InputError(
            f"--backbone {TIMM_PREFIX}NAME needs timm, and {problem.name} is not installed: pip install 'dpssl[vision]'"
        ) from problem
    except (ImportError, RuntimeError, OSError) as problem:  # a torchvision of another build fails in all these ways
        raise InputError(
            f"--backbone {TIMM_PREFIX}NAME: timm is installed but cannot be imported ({problem}); most often "
            f"torchvision was built for another torch than {torch.__version__}: install the torchvision of the same "
            "release and kind (CPU or CUDA), or leave --backbone out"
        ) from problem
    return timm


def _timm_network(name: str, n_channels: int, weights: Mapping[str, Tensor] | None = None, seed: int = 0) -> nn.Module:
    """timm's network `name`; it draws from torch's global generator, which is left as it was."""
    timm = _import_timm()
    architecture = name.removeprefix(TIMM_PREFIX)
    if not timm.is_model(architecture):
        import difflib

        close = difflib.get_close_matches(architecture, timm.list_models(), n=3) or ["resnet18"]
        raise InputError(f"--backbone {name}: timm {timm.__version__} has no such network; near: {', '.join(close)}")
    settings: dict[str, Any] = {"num_classes": 0, "global_pool": "", "in_chans": n_channels}
    if weights is not None:
        settings |= {"pretrained": True, "pretrained_cfg_overlay": {"state_dict": dict(weights)}}
    any_size = {"dynamic_img_size": True, "dynamic_img_pad": True}  # vision transformers would insist on one size
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        try:
            return cast(nn.Module, timm.create_model(architecture, **settings, **any_size))
        except TypeError:  # networks that take any size know no such argument
            torch.manual_seed(seed)
            return cast(nn.Module, timm.create_model(architecture, **settings))


def _reduction(network: nn.Module) -> int:
    stages = getattr(network, "feature_info", None) or []
    return int(stages[-1]["reduction"]) if stages and "reduction" in stages[-1] else USUAL_REDUCTION


def _read_weights(shape: BackboneConfig, network: nn.Module) -> dict[str, Tensor]:
    """The tensors of `--backbone-weights`, known to be this network's."""
    source = f"--backbone-weights {shape.backbone_weights}"
    path = _cached_weights(shape.backbone) if shape.backbone_weights == FROM_CACHE else Path(shape.backbone_weights)
    tensors = _read_tensors(path.expanduser(), source)
    missing = next((name for name, _ in network.named_parameters() if name not in tensors), None)
    if missing is not None:
        raise InputError(f"{source}: has no {missing!r}, so these are not the weights of {shape.backbone}")
    return tensors


def _load_weights(backbone: nn.Module, shape: BackboneConfig) -> None:
    """A Wide ResNet's from a file: `backbone.safetensors` of a run that had a warm start, most often."""
    try:
        backbone.load_state_dict(_tensors_of(shape))
    except RuntimeError as problem:
        raise InputError(
            f"--backbone-weights {shape.backbone_weights}: not the weights of a "
            f"Wide ResNet-{shape.depth}-{shape.width} for such images ({str(problem).splitlines()[-1].strip()})"
        ) from problem


def _tensors_of(shape: BackboneConfig) -> dict[str, Tensor]:
    return _read_tensors(Path(shape.backbone_weights).expanduser(), f"--backbone-weights {shape.backbone_weights}")


def _read_tensors(path: Path, source: str) -> dict[str, Tensor]:
    """A state dict from .safetensors, or from torch's format with nothing admitted but tensors."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        if path.suffix == ".safetensors":
            return load_file(path)
        content = torch.load(path, map_location="cpu", weights_only=True)
    except (OSError, ValueError, RuntimeError, EOFError, SafetensorError, REFUSED) as problem:
        reason = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
        raise InputError(
            f"{source}: cannot be read as weights ({reason}); give a .safetensors file, or a state dict of torch"
        ) from None
    if isinstance(content, dict) and isinstance(content.get("state_dict"), dict):
        content = content["state_dict"]
    if not isinstance(content, dict) or not all(isinstance(value, Tensor) for value in content.values()):
        raise InputError(f"{source}: holds no state dict of tensors; write it with torch.save(model.state_dict(), …)")
    return content


def _cached_weights(name: str) -> Path:
    """Where timm has put the pretrained weights of a network before. Nothing is downloaded."""
    timm = _import_timm()
    from huggingface_hub import try_to_load_from_cache

    entry = timm.get_pretrained_cfg(name.removeprefix(TIMM_PREFIX))
    if entry is not None and entry.hf_hub_id:
        for file in CACHED_NAMES:
            found = try_to_load_from_cache(entry.hf_hub_id, entry.hf_hub_filename or file)
            if isinstance(found, str):
                return Path(found)
    if entry is not None and entry.url:
        found_url: Path = Path(torch.hub.get_dir()) / "checkpoints" / entry.url.rsplit("/", 1)[-1]
        if found_url.is_file():
            return found_url
    architecture = name.removeprefix(TIMM_PREFIX)
    raise InputError(
        f"--backbone-weights {FROM_CACHE}: no weights of {name} are in your cache; fetch them once with "
        f"`python -c \"import timm; timm.create_model('{architecture}', pretrained=True)\"`, or name a file"
    )
