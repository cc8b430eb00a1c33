"""transformers.py: attn_implementation="phases" in transformers: an attention function and the mask function beside it.

Both are registered: for a name without a mask function transformers passes no mask at all, so that a padded batch would
be computed without its padding, silently. And the name may not contain "flash": transformers takes every name that does
for a version of flash-attn.
Use: import flashphases.transformers;  AutoModelForCausalLM.from_pretrained(…, attn_implementation="phases")
"""

from transformers import AttentionInterface, AttentionMaskInterface
from transformers.masking_utils import sdpa_mask

from . import _abi
from .torch import _mask_and_bias, attention

NAME = "phases"


def attention_forward(module, query, key, value, attention_mask, dropout=0.0, scaling=None, is_causal=None,
                      softcap=None, s_aux=None, position_bias=None, **kwargs):
    """query [B, H, Sq, D], key and value [B, Hk, Sk, D]; attention_mask: None, or [B, 1, Sq, Sk], bool (True is seen)
    or added; s_aux [H]: sinks. Returns (o [B, Sq, H, D], None). sliding_window and the like are in the mask."""
    B, H, Sq, _ = query.shape
    shape = (B, H, Sq, key.shape[2])
    mask = bias = None
    if attention_mask is not None:
        mask, bias = _mask_and_bias(attention_mask[..., :shape[3]], query, shape)
    if position_bias is not None:
        if bias is not None:
            position_bias = position_bias + bias
        bias = _mask_and_bias(position_bias.to(query.dtype), query, shape)[1]
    if is_causal is None:
        is_causal = getattr(module, "is_causal", True)
    # Without a mask the meaning is that of torch's is_causal: top-left, and for a single row (decoding) every key.
    causal = "top-left" if is_causal and attention_mask is None and Sq > 1 else None
    o = attention(query, key, value, causal, scaling, mask=mask, bias=bias, dropout=dropout, softcap=softcap or 0.0,
                  sinks=None if s_aux is None else s_aux.float())
    return o.transpose(1, 2).contiguous(), None


def register(name=NAME):
    """Makes attn_implementation=name known; done for "phases" when this file is imported."""
    if "flash" in name:
        _abi.refuse("name", repr(name), "one without 'flash', which transformers takes for flash-attn")
    AttentionInterface.register(name, attention_forward)
    AttentionMaskInterface.register(name, sdpa_mask)  # None where is_causal says it all, else a bool mask


register()
