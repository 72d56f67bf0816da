"""Import `torchvision.datasets`, also where torchvision's compiled operators do not load.

A torchvision built for another torch or another CUDA fails at import with "operator torchvision::nms does not exist" or
a complaint about CUDA versions. Its data sets are plain Python and need none of these operators.
"""

import importlib
import sys
import threading
from types import ModuleType

import torch

from acenode.errors import UserError

_LOCK = threading.Lock()  # two downloads may import it at the same time
_LIBRARIES: list[torch.library.Library] = []  # torch drops a definition together with its library
_OPERATORS = ("nms", "qnms")  # those that torchvision registers more of at import


def torchvision_datasets() -> ModuleType:
    """Return the module `torchvision.datasets`."""
    with _LOCK:
        try:
            return importlib.import_module("torchvision.datasets")
        except ImportError as error:
            raise UserError(f"torchvision cannot be imported ({error}): install it with `pip install torchvision`") \
                from error
        except RuntimeError:  # its compiled operators did not load
            _replace_operators()
        try:
            return importlib.import_module("torchvision.datasets")
        except Exception as error:
            raise UserError(f"torchvision cannot be imported ({str(error).splitlines()[0]}): install the torchvision "
                            f"that matches torch {torch.__version__}") from error


def _replace_operators() -> None:
    """Declare the operators that torchvision needs to be imported; calling one of them is an error."""
    if "torchvision.extension" not in sys.modules:  # it raised the error itself, as it was built for another CUDA
        stub = ModuleType("torchvision.extension", "Stands for operators that were built for another CUDA.")
        vars(stub).update(_has_ops=lambda: False, _load_library=lambda name: False, _check_cuda_version=lambda: -1,
                          _assert_has_ops=_no_operators)
        sys.modules[stub.__name__] = stub
    library = torch.library.Library("torchvision", "FRAGMENT")
    for name in _OPERATORS:
        if not hasattr(torch.ops.torchvision, name):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    _LIBRARIES.append(library)


def _no_operators() -> None:
    raise RuntimeError(f"torchvision's compiled operators do not load with torch {torch.__version__}")
