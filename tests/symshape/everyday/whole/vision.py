"""Models of images, written out by hand."""

from __future__ import annotations

import collections

import torch
import torch.nn.functional as F
from torch import nn

from tests.symshape.everyday.whole.program import img, whole


class BasicBlock(nn.Module):
    def __init__(self, i, o, s=1):
        super().__init__()
        self.conv1 = nn.Conv2d(i, o, 3, s, 1, bias=False)
        self.bn1 = nn.BatchNorm2d(o)
        self.conv2 = nn.Conv2d(o, o, 3, 1, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(o)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            nn.Sequential(nn.Conv2d(i, o, 1, s, bias=False), nn.BatchNorm2d(o))
            if s != 1 or i != o
            else None
        )

    def forward(self, x):
        identity = x
        out = self.relu(self.bn1(self.conv1(x)))
        out = self.bn2(self.conv2(out))
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)


@whole
def resnet():
    net = nn.Sequential(
        nn.Conv2d(3, 8, 7, 2, 3),
        nn.BatchNorm2d(8),
        nn.ReLU(True),
        nn.MaxPool2d(3, 2, 1),
        BasicBlock(8, 8),
        BasicBlock(8, 16, 2),
        nn.AdaptiveAvgPool2d(1),
        nn.Flatten(),
        nn.Linear(16, 5),
    )
    return (net, img)


@whole
def mobilenet_v2():

    class IR(nn.Module):
        def __init__(self, i, o, st, e):
            super().__init__()
            h = i * e
            self.use = st == 1 and i == o
            self.conv = nn.Sequential(
                nn.Conv2d(i, h, 1, bias=False),
                nn.BatchNorm2d(h),
                nn.ReLU6(),
                nn.Conv2d(h, h, 3, st, 1, groups=h, bias=False),
                nn.BatchNorm2d(h),
                nn.ReLU6(),
                nn.Conv2d(h, o, 1, bias=False),
                nn.BatchNorm2d(o),
            )

        def forward(self, x):
            return x + self.conv(x) if self.use else self.conv(x)

    return (
        nn.Sequential(
            IR(3, 8, 2, 2),
            IR(8, 8, 1, 3),
            IR(8, 12, 2, 3),
            nn.AdaptiveAvgPool2d((1, 1)),
            nn.Flatten(1),
            nn.Dropout(0.2),
            nn.Linear(12, 4),
        ),
        img,
    )


@whole
def squeeze_excite_efficientnet():

    class SE(nn.Module):
        def __init__(self, c):
            super().__init__()
            self.fc1, self.fc2 = (nn.Conv2d(c, c // 2, 1), nn.Conv2d(c // 2, c, 1))

        def forward(self, x):
            w = F.adaptive_avg_pool2d(x, 1)
            return x * torch.sigmoid(self.fc2(F.silu(self.fc1(w))))

    class SD(nn.Module):
        def __init__(self, p):
            super().__init__()
            self.p = p

        def forward(self, x):
            if not self.training or self.p == 0:
                return x
            mask = torch.rand(x.shape[0], 1, 1, 1) + (1 - self.p)
            return x.div(1 - self.p) * mask.floor_()

    return (
        nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            SE(8),
            SD(0.2),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(8, 3),
        ),
        img,
    )


@whole
def densenet():

    class D(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Conv2d(4 + 4 * i, 4, 3, 1, 1) for i in range(3)])

        def forward(self, x):
            features = [x]
            for l in self.layers:
                features.append(F.relu(l(torch.cat(features, 1))))
            return torch.cat(features, 1)

    return (nn.Sequential(nn.Conv2d(3, 4, 1), D(), nn.AvgPool2d(2, 2), nn.BatchNorm2d(16)), img)


@whole
def unet():

    class U(nn.Module):
        def __init__(self):
            super().__init__()
            self.d1, self.d2, self.u1, self.up, self.head = (
                nn.Conv2d(3, 4, 3, padding=1),
                nn.Conv2d(4, 8, 3, padding=1),
                nn.Conv2d(8, 4, 3, padding=1),
                nn.ConvTranspose2d(8, 4, 2, 2),
                nn.Conv2d(4, 2, 1),
            )

        def forward(self, x):
            a = F.relu(self.d1(x))
            b = F.relu(self.d2(F.max_pool2d(a, 2)))
            u = self.up(b)
            dy, dx = (a.size(2) - u.size(2), a.size(3) - u.size(3))
            u = F.pad(u, [dx // 2, dx - dx // 2, dy // 2, dy - dy // 2])
            return self.head(F.relu(self.u1(torch.cat([a, u], 1))))

    return (U(), img)


@whole
def vit():

    class V(nn.Module):
        def __init__(self):
            super().__init__()
            self.p = nn.Conv2d(3, 16, 8, 8)
            self.cls = nn.Parameter(torch.zeros(1, 1, 16))
            self.pos = nn.Parameter(torch.randn(1, 17, 16) * 0.02)
            self.enc = nn.TransformerEncoder(
                nn.TransformerEncoderLayer(16, 2, 32, 0.0, batch_first=True), 2
            )
            self.head = nn.Linear(16, 3)

        def pe(self, h, w):
            p = self.pos[:, 1:].reshape(1, 4, 4, 16).permute(0, 3, 1, 2)
            p = F.interpolate(p, size=(h, w), mode="bicubic", align_corners=False)
            return torch.cat([self.pos[:, :1], p.flatten(2).transpose(1, 2)], 1)

        def forward(self, x):
            x = self.p(x)
            h, w = x.shape[-2:]
            x = x.flatten(2).transpose(1, 2)
            x = torch.cat([self.cls.expand(x.shape[0], -1, -1), x], 1) + self.pe(h, w)
            return self.head(self.enc(x)[:, 0])

    return (V(), img)


@whole
def swin_window_attention():

    class W(nn.Module):
        def __init__(self, ws=4):
            super().__init__()
            self.ws = ws
            self.qkv = nn.Linear(8, 24)
            self.bias = nn.Parameter(torch.randn(2, ws * ws, ws * ws))

        def forward(self, x):
            B, H, W, C = x.shape
            ws = self.ws
            pad_r, pad_b = ((ws - W % ws) % ws, (ws - H % ws) % ws)
            x = F.pad(x, (0, 0, 0, pad_r, 0, pad_b))
            _, Hp, Wp, _ = x.shape
            x = torch.roll(x, (-2, -2), (1, 2))
            x = (
                x.view(B, Hp // ws, ws, Wp // ws, ws, C)
                .permute(0, 1, 3, 2, 4, 5)
                .reshape(-1, ws * ws, C)
            )
            q, k, v = (
                self.qkv(x)
                .reshape(x.size(0), x.size(1), 3, 2, C // 2)
                .permute(2, 0, 3, 1, 4)
                .unbind(0)
            )
            a = q * (C // 2) ** (-0.5) @ k.transpose(-2, -1) + self.bias
            x = (a.softmax(-1) @ v).transpose(1, 2).reshape(-1, ws, ws, C)
            x = (
                x.view(B, Hp // ws, Wp // ws, ws, ws, C)
                .permute(0, 1, 3, 2, 4, 5)
                .reshape(B, Hp, Wp, C)
            )
            x = torch.roll(x, (2, 2), (1, 2))
            return x[:, :H, :W, :].contiguous()

    return (W(), lambda b, n: (torch.randn(b, n + 5, n + 6, 8),))


@whole
def detection_boxes_nms():

    def iou(a, b):
        lt, rb = (torch.max(a[:, None, :2], b[:, :2]), torch.min(a[:, None, 2:], b[:, 2:]))
        wh = (rb - lt).clamp(min=0)
        inter = wh[..., 0] * wh[..., 1]

        def area(t):
            return (t[:, 2] - t[:, 0]) * (t[:, 3] - t[:, 1])

        return inter / (area(a)[:, None] + area(b) - inter)

    def run(boxes, scores):
        order = scores.argsort(descending=True)
        boxes = boxes[order]
        m = iou(boxes, boxes).triu(1)
        keep = m.max(0).values < 0.5
        return (boxes[keep], scores[order][keep])

    def make(b, n):
        xy = torch.rand(b * n, 2) * 10
        return (torch.cat([xy, xy + torch.rand(b * n, 2) * 5], 1), torch.rand(b * n))

    return (run, make)


@whole
def feature_pyramid():

    class FPN(nn.Module):
        def __init__(self):
            super().__init__()
            self.c = nn.ModuleList(
                [nn.Conv2d(3, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1), nn.Conv2d(4, 4, 3, 2, 1)]
            )
            self.l = nn.ModuleList([nn.Conv2d(4, 4, 1) for _ in range(3)])

        def forward(self, x):
            fs = []
            for c in self.c:
                x = F.relu(c(x))
                fs.append(x)
            last = self.l[-1](fs[-1])
            out = [last]
            for i in range(1, -1, -1):
                last = self.l[i](fs[i]) + F.interpolate(last, size=fs[i].shape[-2:], mode="nearest")
                out.insert(0, last)
            return collections.OrderedDict(((str(i), o) for i, o in enumerate(out)))

    return (FPN(), img)


@whole
def upscaled_by_factor():
    net = nn.Sequential(
        nn.Conv2d(3, 4, 3, padding=1),
        nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True),
        nn.Conv2d(4, 3, 3, padding=1),
        nn.Upsample(scale_factor=1.5, mode="nearest"),
    )
    return (net, img)


@whole
def dcgan_generator():
    return (
        nn.Sequential(
            nn.ConvTranspose2d(8, 8, 4, 1, 0),
            nn.BatchNorm2d(8),
            nn.ReLU(True),
            nn.ConvTranspose2d(8, 3, 4, 2, 1),
            nn.Tanh(),
        ),
        lambda b, n: (torch.randn(b, 8, 1, 1),),
    )


@whole
def vae():

    class VAE(nn.Module):
        def __init__(self):
            super().__init__()
            self.e, self.mu, self.lv, self.d = (
                nn.Linear(8, 8),
                nn.Linear(8, 4),
                nn.Linear(8, 4),
                nn.Linear(4, 8),
            )

        def reparameterize(self, mu, lv):
            std = torch.exp(0.5 * lv)
            return mu + torch.randn_like(std) * std

        def forward(self, x):
            h = F.relu(self.e(x))
            mu, lv = (self.mu(h), self.lv(h))
            r = torch.sigmoid(self.d(self.reparameterize(mu, lv)))
            return (
                r,
                F.mse_loss(r, x, reduction="sum") - 0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp()),
            )

    return (VAE(), lambda b, n: (torch.randn(b, n, 8),))


@whole
def vqvae_straight_through():

    class VQ(nn.Module):
        def __init__(self):
            super().__init__()
            self.cb = nn.Embedding(10, 4)

        def forward(self, z):
            flat = z.reshape(-1, 4)
            d = (
                flat.pow(2).sum(1, keepdim=True)
                - 2 * flat @ self.cb.weight.t()
                + self.cb.weight.pow(2).sum(1)
            )
            idx = d.argmin(1)
            q = self.cb(idx).view_as(z)
            loss = F.mse_loss(q.detach(), z) + 0.25 * F.mse_loss(q, z.detach())
            avg = F.one_hot(idx, 10).float().mean(0)
            return (z + (q - z).detach(), loss, torch.exp(-torch.sum(avg * torch.log(avg + 1e-10))))

    return (VQ(), lambda b, n: (torch.randn(b, n, 4),))
