"""transformers_test.py: attn_implementation="phases" in transformers, with random weights, beside eager: logits,
gradients of all parameters, padded batches, grouped heads, sinks, windows, and what is generated.
    FLASHPHASES_LIBRARY=…/libflashphases.so python3 tests/library/transformers_test.py [--device cuda]
Exits with 77 and its reason where torch or transformers is absent.
"""

import argparse
import copy
import pathlib
import sys

if "--installed" not in sys.argv:  # that of pip
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "phases/library"))

SKIPPED = 77
try:
    import torch
    import transformers
except ImportError as error:
    print(f"skipped: {error} in {sys.executable}")
    sys.exit(SKIPPED)
if int(transformers.__version__.split(".")[0]) < 5:
    print(f"skipped: transformers {transformers.__version__}; expected 5 or newer")
    sys.exit(SKIPPED)

import flashphases.transformers  # noqa: E402

small = dict(vocab_size=97, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=4,
             num_key_value_heads=2, max_position_embeddings=64, pad_token_id=0, bos_token_id=1, eos_token_id=96)
CONFIGS = {
    "gpt2": lambda: transformers.GPT2Config(vocab_size=97, n_positions=64, n_embd=48, n_layer=2, n_head=3,
                                            attn_pdrop=0.0, resid_pdrop=0.0, embd_pdrop=0.0, bos_token_id=1,
                                            eos_token_id=96, pad_token_id=0),
    "llama": lambda: transformers.LlamaConfig(**small),
    "mistral, a window": lambda: transformers.MistralConfig(**small, sliding_window=5),
    "gemma2, softcap and windows": lambda: transformers.Gemma2Config(
        **small, head_dim=16, sliding_window=5, attn_logit_softcapping=3.0, attention_dropout=0.0),
    "gpt-oss, sinks": lambda: transformers.GptOssConfig(
        **small, head_dim=16, num_local_experts=2, num_experts_per_tok=1, sliding_window=5),
}


def model_of(config, how, device):
    """from_config writes into the config that it is given: two models of one config would both run the last name."""
    torch.manual_seed(0)
    model = transformers.AutoModelForCausalLM.from_config(copy.deepcopy(config), attn_implementation=how)
    assert model.config._attn_implementation == how
    return model.to(device).eval()


def relative(a, b):
    return (torch.linalg.norm(a.double() - b.double()) / torch.linalg.norm(b.double()).clamp(min=1e-12)).item()


def compare(name, config, device):
    eager, ours = (model_of(config, how, device) for how in ("eager", "phases"))
    ours.load_state_dict(eager.state_dict())
    others = []
    if device == "cuda":  # kernels with masks are for 16 bits: as near to eager's fp32 as eager itself is in fp16
        others = [model_of(config, "eager", device)]
        others[0].load_state_dict(eager.state_dict())
        for model in (ours, *others):
            model.half()
    ids = torch.randint(2, 96, (3, 21), generator=torch.Generator().manual_seed(1)).to(device)
    padded = torch.ones_like(ids)
    padded[0, :5] = 0  # on the left, as generate wants it
    padded[1, :2] = 0
    for mask in (None, padded):
        there = torch.ones_like(ids, dtype=torch.bool) if mask is None else mask.bool()
        logits = []
        for model in (eager, ours, *others):
            model.zero_grad()
            out = model(ids, attention_mask=mask).logits
            torch.nn.functional.cross_entropy(out[there].float(), ids[there]).backward()
            logits.append(out[there].detach().float())

        def distances(number, model):
            return ((logits[0] - logits[number]).abs().max().item(),
                    max(relative(a.grad, b.grad) for a, b in zip(model.parameters(), eager.parameters())
                        if b.grad is not None and b.grad.norm() > 1e-7))
        off, worst = distances(1, ours)
        most, worst_of_all = (2 * x for x in distances(2, *others)) if others else (2e-5, 2e-4)
        print(f"{name}, {'padded' if mask is not None else 'whole'}: logits off by {off:.1e}, gradients by {worst:.1e}")
        assert off < most and worst < worst_of_all, f"expected at most {most:.1e} and {worst_of_all:.1e}"
        options = dict(attention_mask=mask, max_new_tokens=8, do_sample=False, pad_token_id=0)
        with torch.no_grad():
            tokens = [model.generate(ids, **options) for model in (eager, ours)]
        # In 16 bits another token may be the likeliest; the first one is judged by the logits above.
        assert tokens[0].shape == tokens[1].shape and (others or torch.equal(*tokens)), "other tokens are generated"


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--device", default="cpu", choices=["cpu", "cuda"])
    parser.add_argument("--installed", action="store_true", help="the package that is installed, not the sources'")
    device = parser.parse_args().device
    if device == "cuda" and not torch.cuda.is_available():
        print("skipped: no GPU")
        sys.exit(SKIPPED)
    torch.set_num_threads(min(torch.get_num_threads(), 2))
    for name, config in CONFIGS.items():
        compare(name, config(), device)
    try:
        flashphases.transformers.register("flashphases")
        sys.exit("a name with 'flash' in it was taken")
    except ValueError as error:
        assert "one without 'flash'" in str(error)
    print("transformers", transformers.__version__, "passed")


if __name__ == "__main__":
    main()
