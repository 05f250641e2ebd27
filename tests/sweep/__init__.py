"""Architectures of transformers, and networks as people write them by hand, tiny and with random
weights.

    python -m tests.sweep                       # all, in every way; a line for each
    python -m tests.sweep --only "bert;unet" --ways plain,mask
    python -m tests.sweep --out tests/bench/results
    python -m tests.sweep --device cuda --runner padded --jobs 12 --ways plain

Each is compiled with ``symshape.compile`` and called at seven batches and lengths (those of
``judging.py``), without and with a mask where it takes one, and in training with dropout off,
gradients and buffers compared too: is everything eager's, bit for bit; how many programs are made;
do new batches and lengths need none; does a call run as it is; is it padded, where the runner does
that, and what refused; what does a warm call cost beside eager's?  What cannot be built here is
left out.

Programs of libraries (einops, kornia, PyG, timm, diffusers, torchvision):
``python -m tests.sweep libraries``.
"""
