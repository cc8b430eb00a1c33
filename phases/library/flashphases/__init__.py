"""flashphases: attention by libflashphases, for PyTorch, transformers and NumPy, forward and backward.
Importing it imports none of them and loads nothing.

    from flashphases import attention                          # torch tensors, NumPy arrays
    from flashphases.torch import scaled_dot_product_attention, sdpa
    from flashphases.flash_attn import flash_attn_func         # and the others of flash_attn
    import flashphases.transformers                            # attn_implementation="phases"
"""

from ._abi import (BackwardArgs, CAN, CHECKED, CPU, DEFINITION, Error, Finding, ForwardArgs, GPU, MASKS, NO_GPU,
                   Refused, SIM, TYPES, Tensor, Unsupported, backward_args, check, chosen_phase, forward_args, phases)

__version__ = "0.2.0"
__all__ = ["BackwardArgs", "CAN", "CHECKED", "CPU", "DEFINITION", "Error", "Finding", "ForwardArgs", "GPU", "MASKS",
           "NO_GPU", "Refused", "SIM", "TYPES", "Tensor", "Unsupported", "attention", "backward_args", "check",
           "chosen_phase", "forward_args", "library", "phases"]


def attention(q, k, v, **options):
    """softmax(q kᵀ · scale) v of [B, H, S, D] arrays: flashphases.torch.attention or flashphases.numpy.attention, which
    say what the options are."""
    if hasattr(q, "data_ptr"):
        from .torch import attention as of_kind
    else:
        from .numpy import attention as of_kind
    return of_kind(q, k, v, **options)


def __getattr__(name):
    if name == "library":  # loaded when it is asked for
        from ._abi import library
        return library()
    raise AttributeError(f"module 'flashphases' has no attribute {name!r}")
