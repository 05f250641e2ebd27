"""Models of timm, diffusers and torchvision, tiny and with random weights, and functions beside
them.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from typing import Any

import torch

from tests.sweep.library_programs import LibraryProgram, function, images, maps

_TIMM = """
    test_resnet test_vit test_vit2 test_vit3 test_vit4 test_convnext test_convnext2 test_convnext3
    test_efficientnet test_efficientnet_ln test_efficientnet_gn test_efficientnet_evos test_byobnet
    test_mambaout test_nfnet resnet18 mobilenetv3_small_050 regnetx_002 ghostnet_050 lcnet_035
    tinynet_e mnasnet_small
"""


def large_images(b: int, n: int) -> tuple[Any, ...]:
    return (torch.rand(b, 3, 8 * n, 8 * n),)


def timm_programs() -> Iterator[LibraryProgram]:
    timm, layers = import_module("timm"), import_module("timm.layers")
    for name in _TIMM.split():
        options = {"dynamic_img_size": True} if "vit" in name else {}
        if timm.is_model(name):
            make = lambda name=name, options=options: timm.create_model(  # noqa: E731
                name, num_classes=5, **options
            )
            yield LibraryProgram(name, make, large_images)
    for text in ("SqueezeExcite(8)", "BlurPool2d(8)", "GatherExcite(8)", "EcaModule(8)"):
        yield LibraryProgram(text, eval(f"lambda: {text}", vars(layers)), maps)
    yield LibraryProgram(
        "AttentionPool2d", lambda: layers.RotAttentionPool2d(8, 8, num_heads=2), maps
    )


def noise(b: int, n: int) -> tuple[Any, ...]:
    return torch.randn(b, 3, 4 * n, 4 * n), torch.randint(0, 1000, (b,))


def told_noise(b: int, n: int) -> tuple[Any, ...]:
    return *noise(b, n), torch.randn(b, n, 16)


def sequences(b: int, n: int) -> tuple[Any, ...]:
    return torch.randn(b, 4, 2 * n, 2 * n), torch.randint(0, 1000, (b,))


_BLOCKS: dict[str, Any] = {
    "block_out_channels": (8, 16),
    "norm_num_groups": 4,
    "layers_per_block": 1,
}
_CONDITIONED: dict[str, Any] = {
    **_BLOCKS,
    "in_channels": 3,
    "out_channels": 3,
    "cross_attention_dim": 16,
    "attention_head_dim": 4,
    "down_block_types": ("DownBlock2D", "CrossAttnDownBlock2D"),
    "up_block_types": ("CrossAttnUpBlock2D", "UpBlock2D"),
}


def diffusers_programs() -> Iterator[LibraryProgram]:
    d = import_module("diffusers")

    def unet() -> Any:
        down, up = ("DownBlock2D", "AttnDownBlock2D"), ("AttnUpBlock2D", "UpBlock2D")
        return d.UNet2DModel(
            **_BLOCKS, attention_head_dim=4, down_block_types=down, up_block_types=up
        )

    yield LibraryProgram("UNet2DModel", unet, noise)
    yield LibraryProgram(
        "UNet2DConditionModel", lambda: d.UNet2DConditionModel(**_CONDITIONED), told_noise
    )
    autoencoder: dict[str, Any] = {
        **_BLOCKS,
        "down_block_types": ("DownEncoderBlock2D",) * 2,
        "up_block_types": ("UpDecoderBlock2D",) * 2,
    }
    yield LibraryProgram("AutoencoderKL", lambda: d.AutoencoderKL(**autoencoder), images)
    yield LibraryProgram("VQModel", lambda: d.VQModel(**autoencoder, num_vq_embeddings=16), images)
    yield LibraryProgram("AutoencoderTiny", lambda: _tiny_autoencoder(d), images)
    dit: dict[str, Any] = {
        "num_attention_heads": 2,
        "attention_head_dim": 4,
        "in_channels": 4,
        "num_layers": 1,
    }
    pixart = {
        **dit,
        "cross_attention_dim": 8,
        "caption_channels": 16,
        "sample_size": 16,
        "norm_num_groups": 2,
    }
    yield LibraryProgram("Transformer2DModel", lambda: _continuous(d), maps)
    yield LibraryProgram("DiTTransformer2DModel", lambda: _labelled(d, dit), sequences)
    yield LibraryProgram("PixArtTransformer2DModel", lambda: _told(d, pixart), sequences)
    yield LibraryProgram(
        "UNet1DModel", lambda: _one_dimensional(d), lambda b, n: (torch.randn(b, 2, 8 * n), 3)
    )
    for name in ("DDPMScheduler", "DDIMScheduler"):
        scheduler = getattr(d, name)()
        add = lambda x, t, scheduler=scheduler: scheduler.add_noise(x, x.flip(0), t)  # noqa: E731
        yield function(f"{name}.add_noise", add, noise)
        scheduler.set_timesteps(10)
        step = lambda x, s=scheduler: s.step(x, 100, x * 2, return_dict=False)[0]  # noqa: E731
        yield function(f"{name}.step", step, images, random=True)
    embed = import_module("diffusers.models.embeddings")
    yield function(
        "timesteps", lambda x, t: embed.get_timestep_embedding(t, 16), noise, trains=False
    )


def _tiny_autoencoder(d: Any) -> Any:
    return d.AutoencoderTiny(
        encoder_block_out_channels=(8, 8),
        decoder_block_out_channels=(8, 8),
        num_encoder_blocks=(1, 1),
        num_decoder_blocks=(1, 1),
    )


def _continuous(d: Any) -> Any:
    return d.Transformer2DModel(2, 4, in_channels=8, num_layers=1, norm_num_groups=4)


def _labelled(d: Any, options: dict[str, Any]) -> Any:
    model = d.DiTTransformer2DModel(
        **options, sample_size=16, num_embeds_ada_norm=1000, norm_num_groups=2
    )
    return lambda x, t: model(x, t, class_labels=t % 1000, return_dict=False)[0]


def _told(d: Any, options: dict[str, Any]) -> Any:
    model = d.PixArtTransformer2DModel(**options, num_embeds_ada_norm=1000)
    return lambda x, t: model(x, x.new_ones(x.shape[0], 3, 16), t, return_dict=False)[0]


def _one_dimensional(d: Any) -> Any:
    return d.UNet1DModel(
        in_channels=2,
        out_channels=2,
        block_out_channels=(32, 32),
        extra_in_channels=64,
        down_block_types=("DownBlock1DNoSkip", "DownBlock1D"),
        up_block_types=("UpBlock1D", "UpBlock1DNoSkip"),
        layers_per_block=1,
    )


_VISION = (
    "resnet18 mobilenet_v2 mobilenet_v3_small shufflenet_v2_x0_5 squeezenet1_1 mnasnet0_5 "
    "regnet_x_400mf googlenet"
)
_TRANSFORMS = """
    resize(x, [9, 12], antialias=True); center_crop(x, [6, 6]); hflip(x); vflip(x); rotate(x, 30.0)
    pad(x, [1, 2])
    affine(x, 10.0, [1, 2], 1.2, [3.0, 0.0]); gaussian_blur(x, [3, 3]); adjust_brightness(x, 1.2)
    adjust_hue(x, 0.1)
    adjust_contrast(x, 0.7); adjust_saturation(x, 1.5); adjust_gamma(x, 1.5); rgb_to_grayscale(x)
    invert(x)
    normalize(x, [0.5, 0.5, 0.5], [0.2, 0.2, 0.2]); solarize(x, 0.5)
    posterize((x * 255).to(torch.uint8), 3)
    five_crop(x, [4, 4])
    perspective(x, [[0, 0], [7, 0], [7, 7], [0, 7]], [[1, 0], [7, 1], [6, 7], [0, 6]])
    autocontrast(x); equalize((x * 255).to(torch.uint8)); adjust_sharpness(x, 1.5)
    erase(x, 1, 1, 3, 3, x[0, :, :1, :1])
"""


def boxes(b: int, n: int) -> tuple[Any, ...]:
    corners = torch.rand(b + n, 2) * 10
    return torch.cat([corners, corners + 1 + torch.rand(b + n, 2)], 1), torch.rand(b + n)


def torchvision_programs() -> Iterator[LibraryProgram]:
    models, ops = import_module("torchvision.models"), import_module("torchvision.ops")
    transforms = import_module("torchvision.transforms.v2.functional")
    for name in _VISION.split():
        options: dict[str, Any] = (
            {"aux_logits": False, "init_weights": False} if name == "googlenet" else {}
        )
        make = lambda name=name, options=options: getattr(models, name)(num_classes=5, **options)  # noqa: E731
        yield LibraryProgram(name, make, large_images)
    segment = models.segmentation.lraspp_mobilenet_v3_large
    yield LibraryProgram(
        "lraspp", lambda: segment(weights=None, weights_backbone=None, num_classes=3), large_images
    )
    for text in (each.strip() for line in _TRANSFORMS.splitlines() for each in line.split(";")):
        if text:
            space = {**vars(transforms), "torch": torch}
            yield function(
                text[:40], eval(f"lambda x: {text}", space), images, trains="uint8" not in text
            )
    yield function("box_iou", lambda x, s: ops.box_iou(x, x.flip(0)), boxes)
    yield function("giou", lambda x, s: ops.generalized_box_iou(x, x.flip(0)), boxes)
    yield function("clip_boxes", lambda x, s: ops.clip_boxes_to_image(x, (8, 9)), boxes)
    yield function(
        "small boxes", lambda x, s: x[ops.remove_small_boxes(x, 1.5)], boxes, trains=False
    )
    yield function("nms", lambda x, s: ops.nms(x, s, 0.5), boxes, trains=False)
    yield function(
        "focal loss", lambda x: ops.sigmoid_focal_loss(x, x.flip(0), reduction="mean"), images
    )
    yield LibraryProgram("FrozenBatchNorm2d", lambda: ops.FrozenBatchNorm2d(3), images)
    yield LibraryProgram(
        "StochasticDepth", lambda: ops.StochasticDepth(0.5, "row"), images, random=True
    )
