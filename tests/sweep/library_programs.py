"""Programs of einops, kornia and PyG (torch_geometric), small and with random weights."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from importlib import import_module
from typing import Any

import attrs
import torch
from torch import nn

Arguments = Callable[[int, int], tuple[Any, ...]]


@attrs.frozen
class LibraryProgram:
    """One program of a library.

    Attributes:
        name: of the program.
        make: makes the function or module that is compiled.
        arguments: of a call, at a batch and a length.
        trains: whether gradients of the arguments and of parameters are compared, too.
        random: whether each call draws random numbers, so that both start from the same seed.
    """

    name: str
    make: Callable[[], Callable[..., Any]]
    arguments: Arguments
    trains: bool = True
    random: bool = False


def rows(b: int, n: int) -> tuple[Any, ...]:
    return (torch.randn(b, n, 8),)


def images(b: int, n: int) -> tuple[Any, ...]:
    return (torch.rand(b, 3, 2 * n, 2 * n + 4),)


def pairs_of_images(b: int, n: int) -> tuple[Any, ...]:
    return torch.rand(b, 3, 2 * n, 2 * n), torch.rand(b, 3, 2 * n, 2 * n)


def maps(b: int, n: int) -> tuple[Any, ...]:
    return (torch.rand(b, 8, n, n),)


def function(
    name: str, call: Callable[..., Any], arguments: Arguments, **options: Any
) -> LibraryProgram:
    return LibraryProgram(name, lambda: call, arguments, **options)


# -- einops ----------------------------------------------------------------------------------------


def _attention(e: Any) -> Callable[..., Any]:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.qkv = nn.Linear(8, 24)

        def forward(self, x: torch.Tensor) -> Any:
            q, k, v = e.rearrange(self.qkv(x), "b t (three h d) -> three b h t d", three=3, h=2)
            weights = torch.softmax(e.einsum(q, k, "b h i d, b h j d -> b h i j") / 2, -1)
            return e.rearrange(
                e.einsum(weights, v, "b h i j, b h j d -> b h i d"), "b h t d -> b t (h d)"
            )

    return Attention()


def einops_programs() -> Iterator[LibraryProgram]:
    e, layers = import_module("einops"), import_module("einops.layers.torch")
    yield function("rearrange, heads", lambda x: e.rearrange(x, "b t (h d) -> b h t d", h=2), rows)
    yield function("rearrange, flat", lambda x: e.rearrange(x, "b t d -> (b t) d"), rows)
    yield function(
        "rearrange, patches", lambda x: e.rearrange(x, "b c (h p) w -> b (h w) (p c)", p=2), images
    )
    yield function("rearrange, one added", lambda x: e.rearrange(x, "b t d -> b 1 t d ()"), rows)
    yield function(
        "rearrange of a list", lambda x: e.rearrange([x, x * 2], "two b t d -> b t (two d)"), rows
    )
    yield function("rearrange, ellipsis", lambda x: e.rearrange(x, "b ... d -> d ... b"), images)
    yield function("reduce, mean", lambda x: e.reduce(x, "b t d -> b d", "mean"), rows)
    yield function("reduce, max", lambda x: e.reduce(x, "b c (h 2) w -> b c h", "max"), images)
    yield function("repeat", lambda x: e.repeat(x, "b t d -> b (t r) d", r=2), rows)
    yield function("repeat, new", lambda x: e.repeat(x, "b t d -> b t k d", k=3), rows)
    yield function("einsum", lambda x: e.einsum(x, x, "b i d, b j d -> b i j"), rows)
    yield function("pack", lambda x: e.pack([x, x[:, 0]], "b * d")[0], rows)

    def there_and_back(x: torch.Tensor) -> Any:
        packed, shapes = e.pack([x, x[:, :1] * 2], "b * d")
        return e.unpack(packed.cumsum(1), shapes, "b * d")

    yield function("pack and unpack", there_and_back, rows)
    yield function(
        "parse_shape", lambda x: x.new_zeros(e.parse_shape(x, "b t d")["t"]), rows, trains=False
    )
    yield LibraryProgram("Rearrange", lambda: layers.Rearrange("b t (h d) -> b h t d", h=4), rows)
    yield LibraryProgram("Reduce", lambda: layers.Reduce("b c h w -> b c", "mean"), images)
    mix = "b t d -> b t e"
    yield LibraryProgram(
        "EinMix", lambda: layers.EinMix(mix, weight_shape="d e", bias_shape="e", d=8, e=5), rows
    )
    yield LibraryProgram("attention", lambda: _attention(e), rows)
    embed = lambda: nn.Sequential(layers.Rearrange("b c h w -> b (h w) c"), nn.Linear(3, 5))  # noqa: E731
    yield LibraryProgram("embedding", embed, images)


# -- kornia ----------------------------------------------------------------------------------------

_SPACES = "filters color geometry enhance losses morphology feature utils metrics augmentation"
_KORNIA = """
    filters.gaussian_blur2d(x, (3, 3), (1.5, 1.5)); filters.box_blur(x, (3, 3))
    filters.median_blur(x, (3, 3))
    filters.sobel(x); filters.laplacian(x, 3); filters.spatial_gradient(x)
    filters.unsharp_mask(x, (3, 3), (1.5, 1.5))
    filters.canny(x)[0]; filters.bilateral_blur(x, (3, 3), 0.1, (1.5, 1.5))
    filters.motion_blur(x, 3, 35.0, 0.5)
    color.rgb_to_grayscale(x); color.rgb_to_hsv(x); color.hsv_to_rgb(x); color.rgb_to_lab(x)
    color.rgb_to_ycbcr(x)
    color.rgb_to_xyz(x); color.rgb_to_luv(x); color.rgb_to_hls(x); color.rgb_to_yuv(x)
    color.sepia(x)
    geometry.transform.resize(x, (9, 12)); geometry.transform.rescale(x, 1.5)
    geometry.transform.hflip(x)
    geometry.transform.rot180(x); geometry.transform.pyrdown(x); geometry.transform.pyrup(x)
    geometry.transform.center_crop(x, (6, 6)); geometry.transform.build_pyramid(x, 2)
    geometry.transform.rotate(x, torch.full((x.shape[0],), 30.0)); geometry.transform.vflip(x)
    geometry.transform.translate(x, torch.ones(x.shape[0], 2))
    geometry.transform.warp_affine(x, torch.eye(3)[None, :2].repeat(x.shape[0], 1, 1), (8, 10))
    geometry.transform.warp_perspective(x, torch.eye(3)[None].repeat(x.shape[0], 1, 1), (8, 10))
    geometry.spatial_expectation2d(x) if hasattr(geometry, 'spatial_expectation2d') else x.sum()
    enhance.adjust_brightness(x, 0.2); enhance.adjust_contrast(x, 0.7); enhance.adjust_gamma(x, 1.5)
    enhance.adjust_hue(x, 0.3); enhance.adjust_saturation(x, 1.5); enhance.normalize_min_max(x)
    enhance.invert(x)
    enhance.normalize(x, torch.full((3,), 0.5), torch.full((3,), 0.2)); enhance.solarize(x)
    enhance.sharpness(x, 0.5)
    enhance.posterize(x, 3); enhance.equalize(x)
    losses.total_variation(x); losses.ssim_loss(x, x.flip(0), 5)
    losses.psnr_loss(x, x.flip(0), 1.0)
    losses.charbonnier_loss(x, x.flip(0))
    losses.js_div_loss_2d(x.softmax(-1), x.flip(0).softmax(-1))
    morphology.dilation(x, torch.ones(3, 3)); morphology.erosion(x, torch.ones(3, 3))
    morphology.opening(x, torch.ones(3, 3)); morphology.gradient(x, torch.ones(3, 3))
    feature.harris_response(x); feature.gftt_response(x); feature.hessian_response(x)
    utils.create_meshgrid(x.shape[2], x.shape[3]); metrics.psnr(x, x.flip(0), 1.0)
    metrics.ssim(x, x.flip(0), 5)
"""
_AUGMENTATIONS = """
    RandomHorizontalFlip(p=0.5); RandomVerticalFlip(p=0.5); RandomAffine(30.0, p=1.0)
    RandomRotation(30.0, p=1.0)
    ColorJitter(0.2, 0.2, 0.2, 0.1, p=1.0); RandomCrop((6, 6), p=1.0); RandomErasing(p=1.0)
    RandomGrayscale(p=0.5)
    RandomGaussianBlur((3, 3), (0.5, 1.5), p=1.0); RandomPerspective(0.3, p=1.0)
    RandomResizedCrop((6, 6), p=1.0)
    RandomGaussianNoise(p=1.0); RandomInvert(p=0.5)
    Normalize(torch.full((3,), 0.5), torch.full((3,), 0.2))
"""


def kornia_programs() -> Iterator[LibraryProgram]:
    kornia = import_module("kornia")
    for name in _SPACES.split():
        import_module(f"kornia.{name}")
    for text in (each.strip() for line in _KORNIA.splitlines() for each in line.split(";")):
        if text:
            space = {**vars(kornia), "torch": torch}
            yield function(
                text[:50], eval(f"lambda x: {text}", space), images, trains="utils" not in text
            )
    for text in (each.strip() for line in _AUGMENTATIONS.splitlines() for each in line.split(";")):
        if text:
            make = eval(f"lambda: {text}", {**vars(kornia.augmentation), "torch": torch})
            yield LibraryProgram(text.partition("(")[0], make, images, trains=False, random=True)


# -- PyG -------------------------------------------------------------------------------------------


def graph(b: int, n: int) -> tuple[Any, ...]:
    nodes = b + 4
    return torch.randn(nodes, 8), torch.randint(0, nodes, (2, 3 * n))


def weighted_graph(b: int, n: int) -> tuple[Any, ...]:
    return *graph(b, n), torch.rand(3 * n)


def batched_graph(b: int, n: int) -> tuple[Any, ...]:
    return torch.randn(3 * b + n, 8), torch.randint(0, b, (3 * b + n,)).sort().values


def points(b: int, n: int) -> tuple[Any, ...]:
    return (torch.randn(b * n, 8),)


_CONVOLUTIONS = """
    GCNConv(8, 6); GATConv(8, 6, heads=2); GATv2Conv(8, 6, heads=2); SAGEConv(8, 6); GraphConv(8, 6)
    TAGConv(8, 6)
    GINConv(torch.nn.Linear(8, 6)); TransformerConv(8, 6, heads=2); ChebConv(8, 6, K=2)
    ARMAConv(8, 6)
    SGConv(8, 6, K=2)
    EdgeConv(torch.nn.Linear(16, 6)); LEConv(8, 6); ClusterGCNConv(8, 6); FeaStConv(8, 6)
    GENConv(8, 6); MFConv(8, 6)
    ResGatedGraphConv(8, 6); SuperGATConv(8, 6); FiLMConv(8, 6); APPNP(3, 0.1); AGNNConv()
    EGConv(8, 6, num_heads=2)
    GeneralConv(8, 6); LGConv(); HypergraphConv(8, 6); GatedGraphConv(8, 2); AntiSymmetricConv(8)
    SAGEConv(8, 6, aggr='max'); SAGEConv(8, 6, aggr='lstm'); SSGConv(8, 6, alpha=0.1)
    PANConv(8, 6, filter_size=2)
    SimpleConv(); WLConvContinuous(); GCNConv(8, 6, add_self_loops=False)
    GATConv(8, 6, add_self_loops=False)
"""


def pyg_programs() -> Iterator[LibraryProgram]:
    nets, utils, models = (
        import_module(f"torch_geometric.{name}") for name in ("nn", "utils", "nn.models")
    )
    for text in (each.strip() for line in _CONVOLUTIONS.splitlines() for each in line.split(";")):
        if text:
            yield LibraryProgram(
                text, eval(f"lambda: {text}", {**vars(nets), "torch": torch}), graph
            )
    for name in ("global_mean_pool", "global_add_pool", "global_max_pool"):
        yield function(name, getattr(nets, name), batched_graph)
    for name in ("GraphNorm(8)", "LayerNorm(8)", "PairNorm()", "BatchNorm(8)", "InstanceNorm(8)"):
        yield LibraryProgram(name, eval(f"lambda: {name}", vars(nets)), points)
    for name in ("GCN", "GAT", "GraphSAGE", "GIN", "EdgeCNN"):
        yield LibraryProgram(
            f"model {name}", lambda name=name: getattr(models, name)(8, 8, 2, 4), graph
        )  # type: ignore[misc]
    yield LibraryProgram("top-k pooling", lambda: nets.TopKPooling(8, ratio=0.5), graph)
    yield function("weighted", lambda x, e, w: nets.SimpleConv()(x, e, w), weighted_graph)
    yield function(
        "self loops", lambda x, e: utils.add_self_loops(e, num_nodes=len(x))[0], graph, trains=False
    )
    yield function("without loops", lambda x, e: utils.remove_self_loops(e)[0], graph, trains=False)
    yield function("degree", lambda x, e: utils.degree(e[0], len(x)), graph, trains=False)
    yield function("softmax", lambda x, i: utils.softmax(x, i), batched_graph)
    yield function("scatter", lambda x, i: utils.scatter(x, i, reduce="mean"), batched_graph)
    yield function("to_dense_batch", lambda x, i: utils.to_dense_batch(x, i)[0], batched_graph)
    yield function(
        "undirected", lambda x, e: utils.to_undirected(e, num_nodes=len(x)), graph, trains=False
    )
    yield function(
        "coalesce", lambda x, e: utils.coalesce(e, num_nodes=len(x)), graph, trains=False
    )
    yield function(
        "dense adjacency",
        lambda x, e: utils.to_dense_adj(e, max_num_nodes=len(x)),
        graph,
        trains=False,
    )
    drop = lambda x, e: utils.dropout_edge(e, p=0.3)[0]  # noqa: E731
    yield function("dropped edges", drop, graph, trains=False, random=True)
