"""flash_attn.py: the functions of the package flash_attn, arguments and meaning, by flashphases.
Tensors are [B, S, H, D]; causal and windows are bottom-right. What is not there is refused by the argument's name.
Use: from flashphases.flash_attn import flash_attn_func, flash_attn_varlen_func, flash_attn_with_kvcache
"""

import torch

from . import _abi
from .torch import attention


def _absent(**arguments):
    for name, (value, expected) in arguments.items():
        if value is not expected and value != expected:
            given = "given" if isinstance(value, torch.Tensor) else value
            raise _abi.Unsupported(f"{name} is {given}; expected {expected}: flashphases does not have it")


def _features(causal, window_size, softcap, alibi_slopes):
    """What attention() is told of masks and scores: window_size has -1 for all keys of that side."""
    left, right = (None if bound < 0 else int(bound) for bound in window_size)
    features = {"causal": "bottom-right" if causal else None, "softcap": softcap, "slopes": alibi_slopes}
    if left is not None or (right is not None and not causal):
        features["window"] = (left, 0 if causal else right)
        features["align"] = None if causal else "bottom-right"
    return features


def _attend(q, k, v, dropout_p, softmax_scale, deterministic, return_attn_probs, **features):
    """[B, S, H, D] in and out; with return_attn_probs (out, lse, None), as flash_attn without dropout."""
    if return_attn_probs and dropout_p:
        _absent(return_attn_probs=(return_attn_probs, False))
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    o, lse = attention(q, k, v, scale=softmax_scale, with_lse=True, dropout=dropout_p,
                       deterministic=deterministic or None, names="flash_attn", **features)
    return (o.transpose(1, 2), lse, None) if return_attn_probs else o.transpose(1, 2)


def flash_attn_func(q, k, v, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """q [B, Sq, H, D], k and v [B, Sk, Hk, D]: [B, Sq, H, D]; alibi_slopes [H] or [B, H], float32."""
    return _attend(q, k, v, dropout_p, softmax_scale, deterministic, return_attn_probs,
                   **_features(causal, window_size, softcap, alibi_slopes))


def flash_attn_qkvpacked_func(qkv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                              alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """qkv [B, S, 3, H, D]; nothing is copied."""
    return flash_attn_func(*qkv.unbind(2), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                           deterministic, return_attn_probs)


def flash_attn_kvpacked_func(q, kv, dropout_p=0.0, softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                             alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """q [B, Sq, H, D], kv [B, Sk, 2, Hk, D]."""
    return flash_attn_func(q, *kv.unbind(2), dropout_p, softmax_scale, causal, window_size, softcap, alibi_slopes,
                           deterministic, return_attn_probs)


def flash_attn_varlen_func(q, k, v, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                           softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0, alibi_slopes=None,
                           deterministic=False, return_attn_probs=False, block_table=None):
    """Sequences packed one behind the other: q [rows, H, D], k and v [keys, Hk, D], cu_seqlens int32 [N + 1];
    max_seqlen is not needed. lse is [H, rows]."""
    _absent(block_table=(block_table, None))
    if alibi_slopes is not None and alibi_slopes.dim() != 1:
        _absent(alibi_slopes=(list(alibi_slopes.shape), "[H] with packed sequences"))
    result = _attend(q[None], k[None], v[None], dropout_p, softmax_scale, deterministic, return_attn_probs,
                     cu_seqlens_q=cu_seqlens_q, cu_seqlens_k=cu_seqlens_k,
                     **_features(causal, window_size, softcap, alibi_slopes))
    return (result[0][0], result[1][0], None) if return_attn_probs else result[0]


def flash_attn_varlen_qkvpacked_func(qkv, cu_seqlens, max_seqlen, dropout_p=0.0, softmax_scale=None, causal=False,
                                     window_size=(-1, -1), softcap=0.0, alibi_slopes=None, deterministic=False,
                                     return_attn_probs=False):
    """qkv [rows, 3, H, D]."""
    return flash_attn_varlen_func(*qkv.unbind(1), cu_seqlens, cu_seqlens, max_seqlen, max_seqlen, dropout_p,
                                  softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                                  return_attn_probs)


def flash_attn_varlen_kvpacked_func(q, kv, cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p=0.0,
                                    softmax_scale=None, causal=False, window_size=(-1, -1), softcap=0.0,
                                    alibi_slopes=None, deterministic=False, return_attn_probs=False):
    """q [rows, H, D], kv [keys, 2, Hk, D]."""
    return flash_attn_varlen_func(q, *kv.unbind(1), cu_seqlens_q, cu_seqlens_k, max_seqlen_q, max_seqlen_k, dropout_p,
                                  softmax_scale, causal, window_size, softcap, alibi_slopes, deterministic,
                                  return_attn_probs)


def flash_attn_with_kvcache(q, k_cache, v_cache, k=None, v=None, rotary_cos=None, rotary_sin=None, cache_seqlens=None,
                            cache_batch_idx=None, cache_leftpad=None, block_table=None, softmax_scale=None,
                            causal=False, window_size=(-1, -1), softcap=0.0, rotary_interleaved=True,
                            alibi_slopes=None, num_splits=0, return_softmax_lse=False):
    """q [B, Sq, H, D] against caches [B_cache, S_cache, Hk, D] of which cache_seqlens (an int, or int32 [B]) rows are
    used, all if None; k and v [B, S_new, Hk, D] are written behind them first, in place. No gradients."""
    _absent(rotary_cos=(rotary_cos, None), rotary_sin=(rotary_sin, None), cache_leftpad=(cache_leftpad, None),
            block_table=(block_table, None))
    if (k is None) != (v is None):
        _abi.refuse("v" if v is None else "k", None, f"a tensor beside {'k' if v is None else 'v'}")
    B, new = q.shape[0], 0 if k is None else k.shape[1]
    if k is not None and cache_seqlens is None:
        _abi.refuse("cache_seqlens", None, "the caches' lengths beside k")
    with torch.no_grad():
        used = cache_seqlens
        if used is not None:
            if not isinstance(used, torch.Tensor):
                used = torch.full((B,), used, dtype=torch.int32, device=q.device)
            if k is not None:
                entries = torch.arange(B, device=q.device) if cache_batch_idx is None else cache_batch_idx.long()
                rows = used.long()[:, None] + torch.arange(new, device=q.device)
                if not q.is_cuda and B and bool((rows[:, -1:] >= k_cache.shape[1]).any()):
                    _abi.refuse("cache_seqlens", used.tolist(), f"at most {k_cache.shape[1] - new}, so that k fits")
                k_cache[entries[:, None], rows], v_cache[entries[:, None], rows] = k, v
            used = (used + new).to(torch.int32)
        if cache_batch_idx is not None:
            k_cache, v_cache = k_cache[cache_batch_idx.long()], v_cache[cache_batch_idx.long()]
        out, lse, _ = _attend(q, k_cache, v_cache, 0.0, softmax_scale, False, True, seqused_k=used,
                              **_features(causal, window_size, softcap, alibi_slopes))
    return (out, lse) if return_softmax_lse else out
