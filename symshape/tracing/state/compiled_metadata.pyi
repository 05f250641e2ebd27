import torch

TORCH: str

class Metadata:
    def __new__(cls, tensors: tuple[torch.Tensor, ...], /) -> Metadata: ...
    def same(self) -> bool: ...
