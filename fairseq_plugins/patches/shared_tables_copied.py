"""A checkpoint of a training on a GPU, or in half precision, holds a shared embedding table once for each of its names.

Each name is copied to the CPU, or to float32, by itself. With ``--share-all-embeddings`` that is two tables too many in
every file: 131 MB at 32,000 words and width 512. In float32 on a CPU nothing is copied, and the file has one.
https://github.com/facebookresearch/fairseq/issues/2138
"""

from collections.abc import Callable
from typing import Any

from fairseq import utils
from torch import Tensor


def move_each_tensor_once(move: Callable[[Any], Any], sample: Any) -> Any:
    """``move_to_cpu``, whose results share memory where the tensors of ``sample`` are the same one."""
    moved: dict[Any, Tensor] = {}

    def once(tensor: Tensor) -> Tensor:
        same = tensor.data_ptr(), tensor.dtype, tensor.device, tensor.shape, tensor.stride()
        if same not in moved:
            [moved[same]] = move([tensor])
        return moved[same]

    return utils.apply_to_sample(once, sample)


WRAPPED = ((utils, "move_to_cpu", move_each_tensor_once),)
