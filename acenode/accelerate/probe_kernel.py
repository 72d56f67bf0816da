"""A minimal Triton kernel, to find out whether kernels compile and run here."""

import triton
import triton.language as tl

from acenode.accelerate.triton_support import Serialised


@Serialised
@triton.jit
def copy(source, target):
    tl.store(target, tl.load(source))
