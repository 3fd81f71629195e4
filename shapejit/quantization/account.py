"""Checks that conversions account for all tensors of quantised weights, and the known buffers."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import quoted
from .naming import names_from, parted
from .parts import Found
from .rows import BY_NAME

_CODE_BITS = 32  # of the widest words of packed codes; PyTorch's indices have 64

# Integer tensors that are no codes: regular expressions of whole names, and what they are.
BUFFERS = {
    r"(.*[._])?ids": "positions, types and numbers of tokens: position_ids (BERT, CLIP)",
    r"(.*\.)?tid2eid(\.weight)?|.*_tid2eid(\.weight)?": "experts of tokens (DeepSeek-V4)",
    r"(.*[._])?(attn|attention)\.(masked_)?bias": "causal masks (GPT-2, GPT-J, GPT-NeoX)",
    r"(.*[._])?mask": "masks: causal_mask (CodeGen), attn_mask (Swin)",
    r"(.*\.)?(relative_position_index|rel_pos_idx|attention_bias_idxs)": "Swin, EVA, LeViT",
    r"(.*\.)?num_batches_tracked": "a counter (BatchNorm)",
    r"(.*\.)?(spiece_model|tekken_model|tokenizer_json)": "a tokenizer's file (ComfyUI)",
}
_BUFFERS = re.compile("|".join(BUFFERS))

# Tensors of a module that are no parts of its weight.
IRRELEVANT = {
    "bias": "added to the product",
    "input_scale": "scale of activations",
    "input_scale_ub": "bound of the scale of activations (FBGEMM)",
    "input_zero_point": "zero point of activations",
    "input_global_scale": "scale of activations",
    "activation_scale": "scale of activations",
    "output_scale": "scale of activations",
    "output_zero_point": "zero point of activations",
    "k_scale": "scale of the cache of keys",
    "v_scale": "scale of the cache of values",
    "q_scale": "scale of queries",
    "kv_scale": "scale of the cache of keys and values",
    "prob_scale": "scale of attention's probabilities",
    "k_zero_point": "zero point of the cache of keys",
    "v_zero_point": "zero point of the cache of values",
    "e_score_correction_bias": "of a router",
    "expert_bias": "of a router",
    "inv_freq": "frequencies of a rotary embedding",
    "cos_cached": "table of a rotary embedding",
    "sin_cached": "table of a rotary embedding",
}


def holds_codes(name: str, x: Any) -> bool:
    """Whether a tensor looks like codes or their scales: low-bit floats, or packed integers.

    >>> from ..arrays.tensor import Tensor
    >>> x = Tensor.frombuffer(bytes(64), "uint8", (64,))
    >>> holds_codes("experts.W_q", x), holds_codes("h.0.attn.bias", x)
    (True, False)
    """
    if x.dtype.kind == "float":
        return bool(x.dtype.bits <= 8 and x.size)
    if x.dtype.kind != "integer" or x.dtype.bits > _CODE_BITS or x.size <= 1:
        return False
    return not _BUFFERS.fullmatch(name)


def unaccounted(
    decoded: Iterable[Found], held: Mapping[str, Any], *, described: bool
) -> dict[str, str]:
    """Tensors that depend on a quantised weight or a config that is gone, each with the reason.

    `decoded` are weights that are stored differently now, `held` the tensors that are copied, by
    their names in the source. `described`: a config, or copied weights, still define how the codes
    among these are read.
    """
    names, made = sorted(held), dict[str, str]()
    for weight in decoded:
        own_names = {*weight.named.values()}
        base, separator, _ = parted(BY_NAME[weight.scheme], weight.codes)
        start = base + separator if separator else f"{weight.codes}_"
        for name in names_from(names, start):
            last = name.removeprefix(start)
            own = "." not in last or name.startswith(f"{weight.codes}.")  # fc.weight.absmax
            if own and name not in own_names and last not in IRRELEVANT:
                made[name] = f"{weight.scheme} has no {last} beside {quoted(weight.codes)}"
    if not described:
        for name, x in held.items():
            if name not in made and holds_codes(name, x):
                made[name] = f"it holds {x.dtype} that nothing describes"
    return made
