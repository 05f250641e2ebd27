"""The settings of Inductor and of AOTAutograd.  Importing this module loads Inductor's settings."""

from __future__ import annotations

import torch._functorch.config
import torch._inductor.config

inductor = torch._inductor.config
functorch = torch._functorch.config
